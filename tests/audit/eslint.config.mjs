// What `make audit` asks of the scripts in generator/website/assets. Each is published in a function
// of its own, so its names are no globals; `book` is what they share (publish.py).
import js from "@eslint/js";
import globals from "globals";

const NAMES = { ...globals.browser, book: "readonly", proofbookSearch: "readonly" }; // of search.js
const BESIDE = [
  "array-callback-return", "eqeqeq", "no-self-compare", "no-shadow", "no-template-curly-in-string",
  "no-unmodified-loop-condition", "no-var", "prefer-const", "require-atomic-updates",
];

export default [
  js.configs.recommended,
  {
    languageOptions: { sourceType: "commonjs", globals: NAMES },
    rules: Object.fromEntries(BESIDE.map((rule) => [rule, "error"])),
  },
];
