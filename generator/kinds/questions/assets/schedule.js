// When an answered question comes back. FSRS 6, with its published parameters, estimates from the
// reader's own answers how long one is remembered; a question returns when nine of ten readers would
// still know it. Days begin at the reader's own midnight.
//
//           sure     fairly sure, or unsaid    a guess
//   right   easy     good                      hard, and due again at once
//   wrong   again, and due again at once

const W = [
  0.212, 1.2931, 2.3065, 8.2956, 6.4133, 0.8334, 3.0194, 0.001, 1.8722, 0.1666, 0.796, 1.4835,
  0.0614, 0.2629, 1.6483, 0.6014, 1.8729, 0.5425, 0.0912, 0.0658, 0.1542,
];
const FACTOR = Math.pow(0.9, -1 / W[20]) - 1; // after as many days as stability says, 0.9 recall
const [AGAIN, HARD, GOOD, EASY] = [1, 2, 3, 4];
const LONGEST = 365; // days

const clamped = (difficulty) => Math.min(Math.max(difficulty, 1), 10);
const firstDifficulty = (rating) => W[4] - Math.exp(W[5] * (rating - 1)) + 1;
const first = (rating) => ({ stability: W[rating - 1], difficulty: clamped(firstDifficulty(rating)) });

function nextStability({ stability, difficulty }, rating, days) {
  if (days < 1) {
    const growth = Math.exp(W[17] * (rating - GOOD + W[18])) * Math.pow(stability, -W[19]);
    return stability * (rating > AGAIN ? Math.max(growth, 1) : growth);
  }
  const forgotten = 1 - Math.pow(1 + (FACTOR * days) / stability, -W[20]);
  if (rating === AGAIN) {
    const left = W[11] * Math.pow(difficulty, -W[12]) * (Math.pow(stability + 1, W[13]) - 1);
    return Math.min(left * Math.exp(forgotten * W[14]), stability / Math.exp(W[17] * W[18]));
  }
  const growth = Math.exp(W[8]) * (11 - difficulty) * Math.pow(stability, -W[9]);
  const bonus = rating === HARD ? W[15] : rating === EASY ? W[16] : 1;
  return stability * (1 + growth * Math.expm1(forgotten * W[10]) * bonus);
}

// What is remembered after an answer, so many days after the one before.
function answered(memory, rating, days) {
  if (!memory) return first(rating);
  const { difficulty } = memory;
  const damped = difficulty + ((10 - difficulty) * W[6] * (GOOD - rating)) / 9;
  return {
    stability: Math.max(nextStability(memory, rating, days), 0.001),
    difficulty: clamped(W[7] * firstDifficulty(EASY) + (1 - W[7]) * damped),
  };
}

const interval = ({ stability }) => Math.min(Math.max(Math.round(stability), 1), LONGEST);

function inDays(num, time) {
  const day = new Date(time);
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() + num);
  return day.getTime();
}

const daysBetween = (from, to) => Math.round((inDays(0, to) - inDays(0, from)) / 864e5);

// What a record says is remembered.
const memoryOf = ({ stability, difficulty, reviewed, done }) =>
  done && stability ? { stability, difficulty, reviewed } : null;

// The new fields of a record. A right answer before its day moves nothing.
function schedule(memory, { due, again }, { isRight, confidence, isGraded, now }) {
  if (isRight && memory && due > now) return { ...memory, due, again: false };
  const rating = !isRight ? AGAIN : [HARD, GOOD, EASY][confidence === null ? 1 : confidence];
  const next = answered(memory, rating, memory ? daysBetween(memory.reviewed, now) : 0);
  const isSoon = isGraded && rating < GOOD && !again;
  return { ...next, reviewed: now, due: isSoon ? now : inDays(interval(next), now), again: isSoon };
}

Object.assign(book, { inDays, daysBetween, memoryOf, schedule, fsrs: { answered, interval } });
