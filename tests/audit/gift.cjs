// The questions of a GIFT file on stdin as gift-pegjs, whose folder is the argument, reads them.
const { parse } = require(process.argv[2]);
process.stdout.write(JSON.stringify(parse(require("node:fs").readFileSync(0, "utf8"))));
