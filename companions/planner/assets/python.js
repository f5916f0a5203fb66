// What Python brings, for scripts that companions/planner/pages/javascript.py writes; signs have the names of Python's own.

const py = {};
{
  const sized = (x) => x?.length ?? x?.size;
  Object.assign(py, {
    is: (x) => (typeof x === "object" && sized(x) !== undefined ? sized(x) > 0 : Boolean(x)),
    list: (x) => (x?.[Symbol.iterator] ? [...x] : Object.keys(x)),
    at: (x, key) => (key?.step ? x.filter((_, n) => key.has(n, x.length)) : x[key < 0 ? x.length + key : key]),
    slice: (...ends) => {
      const [low, high, step] = ends.length > 1 ? ends : [0, ...ends];
      return { step: step ?? 1, has: (n, size) => n >= (low ?? 0) && n < (high < 0 ? size + high : high ?? size) && (n - (low ?? 0)) % (step ?? 1) === 0 };
    },
    Add: (a, b) => (Array.isArray(a) ? [...a, ...b] : typeof a === "string" ? a + b : +a + +b),
    Sub: (a, b) => (a instanceof Set ? new Set([...a].filter((one) => !b.has(one))) : a - b),
    Mult: (a, b) => (Array.isArray(a) ? Array(Number(b)).fill(a).flat() : a * b),
    Div: (a, b) => a / b,
    FloorDiv: (a, b) => Math.floor(a / b),
    Mod: (a, b) => a - b * Math.floor(a / b),
    Pow: (a, b) => a ** b,
    USub: (a) => -a,
    Not: (a) => !py.is(a),
    Or: (...parts) => parts.reduce((found, part) => (py.is(found) ? found : part()), false),
    And: (...parts) => parts.reduce((found, part) => (py.is(found) ? part() : found), true),
    Eq: (a, b) => (typeof a === "string" ? a === b : +a === +b),
    NotEq: (a, b) => !py.Eq(a, b),
    Lt: (a, b) => a < b,
    LtE: (a, b) => a <= b,
    Gt: (a, b) => a > b,
    GtE: (a, b) => a >= b,
    Is: (a, b) => (a ?? null) === b,
    In: (a, b) => (b.includes ? b.includes(a) : a in b),
    len: sized,
    range: (...ends) => {
      const [low, high, step = 1] = ends.length > 1 ? ends : [0, ...ends];
      return Array.from({ length: Math.max(0, Math.ceil((high - low) / step)) }, (_, n) => low + n * step);
    },
    sum: (x) => py.list(x).reduce((a, b) => a + +b, 0),
    prod: (x) => py.list(x).reduce((a, b) => a * b, 1),
    max: (...x) => py.best(x, (a, b) => a > b),
    min: (...x) => py.best(x, (a, b) => a < b),
    best: ([first, ...more], before) => {
      const keys = Object.getPrototypeOf(more.at(-1) ?? 0) === Object.prototype ? more.pop() : {};
      const all = more.length ? [first, ...more] : py.list(first);
      const of = keys.key ?? Number;
      return all.length ? all.reduce((best, one) => (before(of(one), of(best)) ? one : best)) : keys.default;
    },
    sorted: (x) => py.list(x).sort((a, b) => a - b),
    map: (of, ...lists) => py.list(lists[0]).map((_, n) => of(...lists.map((one) => one[n]))),
    divmod: (a, b) => [Math.floor(a / b), py.Mod(a, b)],
    ceil: Math.ceil,
    round: (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)),
  });
  // A dictionary with any keys; those that are lists are equal where their parts are.
  py.Counter = function (keys) {
    const own = new Map();
    const of = (key) => (Array.isArray(key) ? JSON.stringify(key) : key);
    const all = {
      get size() { return own.size; },
      [Symbol.iterator]: () => own.keys(),
      setdefault: (key, value) => own.get(of(key)) ?? (own.set(of(key), value), value),
      items: () => [...own],
      total: () => py.sum(own.values()),
    };
    py.list(keys).forEach((key) => own.set(of(key), (own.get(of(key)) ?? 0) + 1));
    return all;
  };
  // An object whose methods keep it.
  py.Record = class {
    constructor(fields) {
      const { prototype, usual } = new.target;
      Object.entries(Object.getOwnPropertyDescriptors(prototype)).forEach(([name, { value }]) => {
        if (value && name !== "constructor") this[name] = value.bind(this);
      });
      Object.assign(this, structuredClone(usual), typeof fields === "string" ? { message: fields } : fields);
    }
  };
}
book.py = py;
