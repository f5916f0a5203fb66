// The tables of a Recall page: what comes back on the coming days, and how often the reader was right
// when sure. recall.js loads this file once there is an answer.
(function () {
  "use strict";

  const book = window.proofbook;
  const { words, say, made, inDays } = book;
  const DAYS = 7; // of the forecast

  function table(head, rows) {
    const line = (cells, isHead) => {
      const row = made("tr");
      cells.forEach((cell, position) => {
        const isTitle = cell && (isHead || !position);
        const one = made(isTitle ? "th" : "td", position ? "pb-label" : "");
        if (isTitle) one.scope = isHead ? "col" : "row";
        one.append(cell);
        row.append(one);
      });
      return row;
    };
    const whole = made("table", "pb-table");
    const top = made("thead");
    const body = made("tbody");
    top.append(line(head, true));
    body.append(...rows.map((cells) => line(cells, false)));
    whole.append(top, body);
    return whole;
  }

  // How many questions come back on each day; `day` names one.
  function forecast(days, day) {
    const counts = new Array(DAYS + 1).fill(0);
    days.forEach((one) => (counts[Math.min(Math.max(one, 0), DAYS)] += 1));
    const rows = counts.map((count, position) => {
      const bar = made("span", "pb-bar");
      bar.style.width = `${(100 * count) / Math.max(...counts)}%`;
      return [position < DAYS ? day(inDays(position, Date.now())) : words.later, String(count), bar];
    });
    return [table([words.day, words.questions, ""], rows)];
  }

  function calibration(tries) {
    const counts = [0, 1, 2].map((level) => {
      const those = tries.filter((one) => one.confidence === level);
      return [those.filter((one) => one.is_right).length, those.length];
    });
    const rows = counts.map(([n, m], level) => [
      words.levels[level],
      m ? say("right_of", { n, m }) : "–",
      m ? `${Math.round((100 * n) / m)}%` : "–",
    ]);
    const [[luck, guesses], , [right, sure]] = counts;
    const worth = sure < 5 ? "calibration_few" : right / sure < 0.8 ? "calibration_over" : "calibration_fits";
    const told = made("p", "", words[worth]);
    if (guesses > 4 && luck / guesses > 0.7) told.append(" ", words.calibration_under);
    return [table([words.you_were, words.were_right, words.share], rows.reverse()), told];
  }

  book.progress = { forecast, calibration };
})();
