// What a value is and where it comes from, as `sources.js` shows it: read from the data at the page's end.

const { made, source: words } = book;
const data = JSON.parse(document.getElementById("pb-sources").textContent);
data.runs = data.runs.map((run) => [...run.splice(0, 4).map((at) => data.words[at]), ...run]);
const linked = (text, href) => Object.assign(made("a", "", text), { href });
const isRun = Number.isInteger;
const path = (of, field, by) => [data.runs[of][1], data.runs[of][4], field].filter(Boolean).join(by);

const pathOf = (at) => path(data.values[at][3], data.values[at][2], ".");
const placeOf = (of) => {
  const [machine, experiment, , , name, suffix] = data.runs[of];
  return `${data.root}${machine ? `evidence/${experiment}` : experiment.replace("_", "/")}.html#${name}${suffix || ""}`;
};

// The rows of a value: a name and what it says. Columns as generator/printing/sources.py has them.
function rowsOf(value) {
  const [text, kind, formula, of, exact, absent, marks, here, run] = value;
  const rows = [];
  const traces = {};
  const add = (name, said) => said && rows.push([name, said]);
  const from = (one) => {
    const [machine, experiment] = data.runs[one];
    if (machine && experiment) traces[`traces/${machine}/${experiment}.json`] = `${experiment}.json`;
    return machine || words.no_machine;
  };
  add(words.why, absent);
  marks?.split(" ").forEach((mark) => add(words.nature, data.natures[mark]));
  add(words.exactly, exact === 1 ? text : exact);
  if (here) add(words.here, linked(`${here}, ${data.runs[run][0]}, ${data.runs[run][2]}`, placeOf(run)));
  if (isRun(of)) {
    const [machine, experiment, recorded, software, name] = data.runs[of];
    add(words.from, made("code", "", path(of, formula, " · ")));
    add(words.on, experiment ? `${from(of)}, ${recorded}, ${software}` : machine);
    add(words.run, name && linked(name, placeOf(of)));
  } else if (kind > 3) { // cited or stated
    add(words.source, formula);
  } else {
    const machines = new Set();
    add(words.formula, made("code", "", formula.replace(/\{(\d+)\}/g, (slot, at) => pathOf(of[at]))));
    of?.forEach((at) => {
      const [shown, one, field, read] = data.values[at];
      const name = !isRun(read) ? field : data.runs[read][4] ? linked(pathOf(at), placeOf(read)) : pathOf(at);
      add(words.from, made("span", "", made("code", "", name), ` = ${shown} (${words.kinds[one].split(/\W/)[0]})`));
      if (isRun(read)) machines.add(from(read));
    });
    machines.forEach((machine) => add(words.on, machine));
  }
  // What a run measured or simulated is measured again by its field; what is computed of such, by their runs.
  const again = new Set();
  (isRun(of) ? [value] : of?.map((at) => data.values[at]))?.forEach(([, how, field, read]) => {
    if (how % 2 && data.runs[read]?.[4]) again.add(path(read, isRun(of) && field, "."));
  });
  if (again.size) {
    const quoted = [...again].map((one) => (one.includes("[") ? `'${one}'` : one)); // as a shell needs it
    const name = linked(isRun(of) ? words.repeat : words.repeat_inputs, `${data.root}evidence.html#repeat`);
    add(name, made("code", "", [data.command, ...quoted].join(" ")));
  }
  Object.entries(traces).forEach(([place, name]) => add(words.trace, linked(name, data.root + place)));
  return rows;
}

// Fill the popover of a value.
book.fill = (link, box) => {
  const shown = link.firstChild?.textContent.trim();
  const value = data.values[link.dataset.v];
  // In the unit that was pressed: a slider's ends may have another one than the value has elsewhere.
  const bold = made("b", "", /\d\s\D/.test(shown) ? shown : value[0] || shown);
  const head = made("p", "", bold, `: ${words.kinds[value[1]]}`);
  const rows = rowsOf(value).map(([name, said]) => made("div", "", made("dt", "", name), made("dd", "", said)));
  box.replaceChildren(head, made("dl", "pb-facts", ...rows));
  box.ariaLabel = head.textContent;
};
