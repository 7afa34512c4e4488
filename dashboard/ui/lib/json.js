// JSON as it is stored. JavaScript rounds integers beyond 2⁵³, such as the ids and seeds of tasks.

// Exact is such an integer: a number where one computes with it, and its own digits where it is shown.
class Exact extends Number {
  constructor(digits) {
    super(digits);
    this.digits = digits;
  }
  toString() {
    return this.digits;
  }
  toJSON() {
    return JSON.rawJSON(this.digits);
  }
}

const long = /[:,[\s]-?\d{16}|^-?\d{16}/; // only texts with a long integer are read value by value, which takes longer

// parse reads JSON. Browsers that do not tell the source of a number round it.
export function parse(text) {
  if (!JSON.rawJSON || !long.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, { source } = {}) => (typeof value === "number" && /^-?\d{16,}$/.test(source) && BigInt(source) !== BigInt(value) ? new Exact(source) : value));
}
