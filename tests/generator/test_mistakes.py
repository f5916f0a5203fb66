"""Every mistake of an author, one row each: an edit of the frozen book, where it is told, and how.

`¦` in the new text marks the place that the message must name; it is no part of the text. A fifth
column is text of the file at which the message stands instead; without either any line will do.
"""

import re

import pytest

from proofbook.generator.content.errors import ContentErrors
from tests.generator.conftest import render

MARK = "¦"
HOME, GUIDE, GLOSSARY, STATEMENTS = "site.yml", "guide.yml", "glossary.yml", "statements.yml"
AVERAGING, SHARDING, ASKING = "topics/averaging", "topics/sharding", "topics/asking"
LEARN, WHY, TRACE, TRY, COST, QUIZ, QUIZ_TRY, WORKED = (
    f"{AVERAGING}/{name}.yml"
    for name in ("learn", "why", "trace", "try", "cost", "quiz", "quiz-try", "worked")
)
TOPIC, PIECE = f"{AVERAGING}/topic.yml", "why: Every parameter and its gradient stand on one rank."
DEEP, EXPERIMENT = f"{SHARDING}/deep.yml", f"{SHARDING}/experiment.yml"
ITEMS, MEMORY, TRAINING = f"{ASKING}/quiz.yml", "claims/tiny_memory.yml", "claims/tiny_training.yml"
WHOLE, HALVES = (f"tiny_memory.{run}.ranks[0].memory.peak_bytes" for run in ("whole", "halves"))
STEP = "median(tiny_training.single.timing.step)"
LAST = "repeat: The command runs in a clone.\n"
FOR = "for: [tiny_memory.halves, tiny_memory.whole]"
MEAN = "path: content/topics/averaging/code/mean.py"
GIVEN = "given: {model_bytes: tiny_memory.whole.model.bytes,"
RULE = "measured: run.ranks[0].memory.peak_bytes"
DRAWN, SHARE = f"{AVERAGING}/quiz-drawn.yml", "gives: 2 * cited['fp32-width'] * parameters / ranks"
THIRD = (
    "right_if: {claim: whole-fails, verdict: does_not_hold}\n"
    "        misconception: copies-save-memory\n        refuted_by: whole-fails"
)

# A section's program, whole and without a mistake.
PROGRAM = """\
    program:
      path: content/topics/averaging/code/mean.py
      run: tiny_training.averaged
      title: The mean by hand
      walkthrough:
        - code: total = sum(gradients)
          says: The gradients of all ranks are added.
        - code: return total / world_size
          says: The sum is divided by the number of ranks.
      output_says: Both ranks apply the same update.
"""

LAUGHS = "".join(f"a{one + 1}: &a{one + 1} [{f'*a{one}, ' * 9}]\n" for one in range(12))
YAML = [
    (QUIZ, "  - id: is-it-equal\n", "  - id: is-it-equal¦: no\n", "not YAML: mapping values"),
    (QUIZ, "    stem: Do", "    ¦stme: Do", "unknown key 'stme'; did you mean 'stem'?"),
    (TOPIC, "order: 2", f"order: ¦{'9' * 400}", "order: must be less than or equal to 999"),
    (TOPIC, "order: 2", f"order: ¦{'9' * 5000}", "begins no number to read"),
    (ITEMS, PIECE, f"{PIECE}\n        ¦solve: it", "unknown key 'solve'; known: by, recorded, te"),
    (HOME, "title: A tiny book", "title: ¦{{ ddp.x }} of it", "quote a text that begins with {{"),
    (HOME, LAST, f"{LAST}a:\n¦\t- b", "write spaces, not a tab"),
    (HOME, LAST, f"{LAST}a:\n  b: c\n¦\td: e", "write spaces, not a tab"),
    (HOME, LAST, f"{LAST}a:\n  - b: c\n   ¦d: e", "let what belongs together begin alike"),
    (HOME, LAST, f'{LAST}a: "b" ¦c', "or a quotation mark"),
    (QUIZ, '"No"', "¦No", "text: must be text; quote it"),
    (QUIZ, "right_if: {claim: averaging-is-equal}", "right_if: ¦'{claim: it}'",
     "must be a part with keys; in quotes it is a text, so write {claim: it}"),
    (COST, "checks: [what-is-sent]", "checks: ¦what-is-sent", "a list; write [what-is-sent]"),
    (QUIZ, "right_if: {claim: averaging-is-equal}", "right_if: {¦'claim: it'}",
     "unknown key 'claim: it'; in quotes, it is one key without a value"),
    (QUIZ, "claim: averaging-is-equal}", "claim: ¦\"'averaging-is-equal'\"}",
     "in quotes it is a text, so write averaging-is-equal"),
    (HOME, LAST, f"{LAST}¦title: Another", "'title'; line 1 has it already"),
    (HOME, LAST, f"{LAST}x: ¦!!python/object/apply:os.system [ls]", "is not used here"),
    (HOME, LAST, f"{LAST}¦---\ntitle: x", "keep one document to a file"),
    (HOME, LAST, f"{LAST}? ¦[a]\n: x", "a key must be a word"),
    (HOME, LAST, f"{LAST}a0: &a0 [¦x, y]\n" + LAUGHS, "repeat more than the file holds"),
    (HOME, LAST, f"{LAST}a: &a [*a]", "an alias (*name) stands within what it repeats"),
    (HOME, LAST, f"{LAST}x: ti¦\x1bny", "a control character (U+001B); delete it"),
    (HOME, "title: A tiny book", "title: ¦5", "title: must be text; quote it"),
    (MEMORY, "{relative: 0.05}", "{relative: ¦.nan}", "relative: must be"),
    (MEMORY, "{relative: 0.05}", "{relative: ¦-0.1}", "relative: must be"),
    (MEMORY, "{relative: 0.05}", "¦{}", "missing key 'relative' or 'absolute'"),
    (MEMORY, "{relative: 0.05}", "¦{relative: 0.1, absolute: 1}", "give one of"),
    (MEMORY, "{relative: 0.05}", "¦{epsilons: 4}", "give both"),
]  # fmt: skip
TEXTS = [
    (EXPERIMENT, "cut in two.", "cut into ¦2.", "bare numeral '2'"),
    (EXPERIMENT, "  The whole model of", "  ¦Twice the model of", "spelled quantity"),
    (HOME, "Ranks of {{ tiny_memory.whole_budget", "Ranks of {{ ¦tiny_memory.whole_budgit",
     "did you mean 'whole_budget'?"),
    (HOME, "page: sharding/deep", "page: ¦sharding/deeep", "did you mean 'sharding/deep'?"),
    (EXPERIMENT, f'cells: ["{WHOLE}', f'cells: [¦"{WHOLE}'.replace("[0]", "[1]"), "no element 1"),
    (EXPERIMENT, "commit: who-fits", "commit: ¦who-fist", "mean 'who-fits'?"),
    (EXPERIMENT, "[whole-fails, whole-needs", "[¦whole-failed, whole-needs",
     "no claim 'whole-failed'; did you mean 'whole-fails'?"),
    (EXPERIMENT, "figure: bars", "figure: ¦bras", "did you mean 'bars'?"),
    (EXPERIMENT, "  figure: bars\n", "", "write figure: bars where it teaches", "bars\n    kind"),
    (f"{AVERAGING}/recall.yml", "afterword:", "figures:\n  - {id: ¦extra, kind: epochs, title: A, "
     "caption: B, runs: [tiny_training.single]}\nafterword:", "this mode show none, so delete it"),
    (EXPERIMENT, "[ddp-paper]", "[¦ddp-papers]", "no reference 'ddp-papers'; did"),
    (EXPERIMENT, "output: tiny_memory.whole_b", "output: ¦tiny_memory.whale_b", "whole_budget'?"),
    (EXPERIMENT, "path: content/topics/sharding/code/halve.py", "path: ¦../../etc/passwd",
     "'../../etc/passwd' is no code that a run executes"),
    (EXPERIMENT, "object: halve", "object: havle", "did you mean 'halve'?", "content/topics"),
    ("references.yml", "https://arxiv", "¦http://arxiv", "url: must match"),
    ("planner/plan.yml", "Choose a model.", "It holds {{ ¦plan_tiny.ddp_on_4.ranks[0].rank }}.",
     "plan_tiny has no run 'ddp_on_4'"),
    ("planner/plan.yml", "models: [plan_tiny]", "models: [¦plan_tyni]", "mean 'plan_tiny'?"),
    (GLOSSARY, "run: tiny_training.averaged", "run: ¦tiny_training.averagd", "mean 'averaged'?"),
    (GLOSSARY, "\nsynonyms:", "  - id: ¦gradient\n    term: slope\n    definition: It.\n"
     "    run: tiny_training.averaged\n\nsynonyms:", "duplicate term id 'gradient'"),
    (STATEMENTS, 'verdict: "false"', 'verdict: "true"', "true needs a claim"),
    (STATEMENTS, 'verdict: "true"', 'verdict: "false"', "it is confirmed"),
    (STATEMENTS, 'verdict: "true"', 'verdict: "too_general"', "too_general needs a claim"),
    (f"{SHARDING}/topic.yml", "order: 1", "order: 1\nrequires: [¦averaging]", "comes later"),
    (LEARN, "figures:\n", "figures:\n  - {id: learnt, kind: epochs, title: A, caption: B, "
     "runs: [tiny_training.single]}\n", "duplicate figure id 'learnt'", "learnt\n    kind"),
    (LEARN, "takeaway: ", "takeaway: On {{ ¦bath.world_size }}. ", "unknown name 'bath'"),
    (LEARN, "takeaway: ", "takeaway: On {{ ¦tiny_training.averaged.gone }}. ",
     "tiny_training.averaged has no field 'gone'"),
    (f"{SHARDING}/topic.yml", "  experiment:", "  trace: What?\n  experiment:",
     "'trace' stands under modes:, but not in the folder"),
    (f"{AVERAGING}/topic.yml", "  trace: What happens to one batch?", "  deep: Why?",
     "'trace' stands not under modes:, but in the folder"),
]  # fmt: skip
LESSONS = [
    (DEEP, "commit: ", "commit: ¦what-", "no item 'what-who-fits'"),
    (DEEP, "text: The largest layer decides.\n", "text: The largest layer decides.\n"
     + PROGRAM.replace("total = sum(gradients)", "¦total = sum(gradient)"),
     "did you mean 'total = sum(gradients)'?"),
    (TRACE, "name: load", "name: ¦laod", "recorded no 'laod'; did you"),
    (TRACE, "run: tiny_training.averaged", "run: ¦tiny_trainings.averaged",
     "unknown name 'tiny_trainings'; did you mean 'tiny_training'?"),
    (TRACE, "run: tiny_training.averaged", "run: ¦machine.name", "'machine.name' is no run"),
    (LEARN, "code: total = sum(gradients)", "code: ¦total = sum(gradient)",
     "does not stand in the listing; did you mean 'total = sum(gradients)'?"),
    (LEARN, "  output_says:", "  reports_from: ¦print(totals)\n  output_says:",
     "does not stand in the listing"),
    (LEARN, MEAN, MEAN.replace("content", "¦content").replace("mean", "means"), "no file 'content"),
    (TRY, "value: tiny_training.averaged.epochs", "value: ¦tiny_training.single.epochs",
     "it starts tiny_training.averaged."),
    (WHY, "          tiny_memory.whole: whole", "          tiny_memory.hole: whole",
     "tiny_memory.whole has no option of 'Way'", "task: What does"),
    (WHY, "          tiny_memory.whole: whole", "          tiny_memory.whole: whole\n"
     "          tiny_memory.wohle: ¦all", "'Way' has no 'tiny_memory.wohle'; did you mean 'tiny_m"),
    (WHY, "takeaway: ", "takeaway: |\n  ¦```yaml\n  a: b\n  ```\n\n  ", "fence '```yaml'; write"),
    (WHY, "shows: [memory]", "shows: [memory, ¦schedule]",
     "for tiny_memory.whole: run.settings.backward_ratio: "),
    (TRY, "set: {learning_rate: 0.2}", "set: {learning_rates: ¦0.2}",
     "has no setting 'learning_rates'; did you mean 'learning_rate'?"),
    (WHY, "claim: halves-complete", "claim: ¦broken-law", "no claim 'broken-law'"),
    (COST, "law: whole-peak", "law: ¦replicas-drift",
     "replicas-drift compares no numbers: predicted is tiny_training.drifting"),
    (COST, GIVEN, GIVEN.replace("{", "{modle_bytes: ¦4, "), "no input is named 'modle_bytes'; did"),
    (COST, RULE, "measured: ¦run.ranks[0].memory.peek_bytes", "for tiny_memory.whole: "),
    (COST, RULE, "measured: ¦rank(0)", "rank(0) is no number"),
    (COST, "x: run.ranks[0].num_parameters", "x: ¦run.strategy",
     "for tiny_memory.whole: run.strategy is no number"),
]  # fmt: skip
CALCULATORS = [
    (COST, "formula: model_bytes * copies", "formula: ¦model_bytes ** copies", "are made of"),
    (COST, "formula: model_bytes * copies", "formula: ¦model_bytes * copis", "mean 'copies'?"),
    (COST, "name: peak", "name: copies", "two inputs or outputs have the same name"),
    (COST, "start: tiny_memory.whole.model.bytes",
     "start: ¦median(tiny_training.single.timing.step)", "is seconds, not bytes"),
    (COST, "Peak of a rank\n      quantity: bytes", "Peak of a rank\n      quantity: seconds",
     "seconds and bytes cannot be added"),
    (COST, GIVEN, "given: ¦{", "the formula needs 'model_bytes'"),
    (COST, GIVEN, f'given: {{model_bytes: ¦"{WHOLE} / 2",', "the very field that the formula is"),
    (COST, f"measured: {WHOLE}", "measured: ¦tiny_memory.whole.model.bytes",
     "is nothing that a run measured"),
    (COST, "within: {relative: 0.05}", "within: {relative: 0.01}",
     "off by −2.44% on tiny_memory.halves", HALVES.replace("[0]", "[1]")),  # 80 over 82
    (COST, "- run: tiny_memory.whole", "- law: whole-peak\n          run: tiny_memory.whole",
     "give one of law, run, and no other"),
    (COST, "- run: tiny_memory.whole", "- ¦whole-peaks\n        - run: tiny_memory.whole",
     "no claim"),
]  # fmt: skip
QUESTIONS = [
    (QUIZ, "right_if: {claim: averaging-is-equal, verdict: does_not_hold}",
     "right_if: {claim: averaging-is-equal}", "an option is wrong"),
    (QUIZ, "right_if: {claim: replicas-drift}",
     "right_if: {claim: replicas-drift, verdict: no_evidence}", "has no key", "without-av"),
    (QUIZ, "claim: replicas-drift}", "claim: ¦averaged-bytes}", "name one of them"),
    (QUIZ, "claim: replicas-drift}", "claim: ¦averaged-bytes@tiny_memory.whole}",
     "is not judged on 'tiny_memory.whole'; known:"),
    (ITEMS, "gives: tiny_memory.whole.model.bytes", f"gives: ¦{WHOLE}",
     "which is the answer (160 KiB) within the tolerance"),
    (ITEMS, "gives: tiny_memory.whole.model.bytes", "gives: ¦tiny_memory.whole.world_size",
     "the slip is in count, the answer in bytes"),
    (ITEMS, "answer: tiny_training.averaged.timing", "answer: ¦tiny_memory.whole.status #",
     "not a number"),
    (ITEMS, f"answer: {WHOLE}", "answer: ¦tiny_memory.whole.status", "not a number"),
    (ITEMS, "kept_as: complete", "kept_as: ¦compleat", "kept_as"),
    (ITEMS, f"answer: {WHOLE}", "answer: ¦rank(0)", "these are words; a value is wanted here"),
    (ITEMS, f"low: {STEP} / 10", f"low: ¦10 * {STEP}", "the answer does not lie between"),
    (ITEMS, f"high: {STEP} * 10", "high: ¦tiny_memory.whole.world_size",
     "high is a number in the unit of the answer (seconds)"),
    (ITEMS, THIRD, "right_if: {claim: whole-fails}", "every option is right", "which-hold"),
    (ITEMS, f"by: {HALVES}", f"by: {WHOLE}", "have the same value; no order",
     f"{WHOLE}\n      - text: the second"),
    (ITEMS, f"by: {HALVES}", "by: ¦tiny_memory.halves.world_size",
     "a piece in count has no place among those in bytes"),
    (ITEMS, f"        by: {HALVES}\n", "", "missing key 'by' or 'recorded'",
     "text: the first part of the split"),
    (ITEMS, "\"{{ tiny_training.averaged.settings.num_rows }}\"", "forty",
     "nothing backs this pair", "left: its rows"),
    (ITEMS, 'right: "{{ tiny_training.averaged.settings.num_epochs }}"',
     'right: ¦"{{ tiny_training.averaged.world_size }}"', "is '2' here too, as in pair 2"),
    (ITEMS, "code: total = sum(gradients)", "code: ¦total = sum(gradient)", "stand in the listing"),
    (ITEMS, "code: return total * 1", "code: return total",
     "of its lines differ in the corrected program", "- code: total = sum"),
    (ITEMS, "    tolerance: {absolute: 0.01}\n", "",
     "the answer is no whole number; say in tolerance: how near is right",
     "tiny_training.averaged.ep"),
    (QUIZ_TRY, FOR, "for: [tiny_memory.halves, ¦tiny_memory.hole]", "has no run 'hole'"),
    (QUIZ_TRY, FOR, "for: [{run: tiny_memory.halves}, {it: tiny_memory.whole}]",
     "binds the same names"),
    (QUIZ_TRY, FOR, "for: [tiny_memory.halves]", "for: has one case"),
    (QUIZ_TRY, "A model of {{ run.model.bytes }} trains on {{ run.world_size }} ranks.", "It runs.",
     "this case reads like the first"),
    (QUIZ_TRY, "some activations", "{{ holds('peak-of-halves@run') }}", "no claim"),
    (QUIZ, "    asks: [parameter_digest]\n", "",
     "name under asks: the values that the question asks for; claim 'replicas-drift', which makes "
     "this right, reads parameter_digest", "{claim: replicas-drift}"),
    (QUIZ, "asks: [parameter_digest]", "asks: [loss]", "reads parameter_digest, and none of what",
     "{claim: replicas-drift}"),
    (QUIZ, "asks: [parameter_digest]", "asks: [tiny_memory.parameter_digest]", "and none of what",
     "{claim: replicas-drift}"),
    (ITEMS, "asks: [loss, parameter_digest, status]", "asks: [loss, status]",
     "reads parameter_digest, and none of what", "{claim: replicas-drift}"),
    (ITEMS, "asks: [loss]\n    pairs", "asks: [lost]\n    pairs", "reads loss, and none",
     "averaging-is-equal\n      - left: its epochs"),
    (ITEMS, "answer: tiny_memory.whole.model.num", "answer: ¦tiny_memory.halves.model.num",
     "reads tiny_memory.halves, and its claims are about other runs"),
    (ITEMS, f"answer: {WHOLE}", f"answer: ¦{HALVES}",
     "and its stem, table and exhibit are about other runs"),
]  # fmt: skip
DRAWS = [
    (DRAWN, SHARE, "gives: ¦6 * cited['fp32-width'] * parameters / ranks",
     "ranks = 3: two right answers: "),
    (DRAWN, SHARE, "gives: ¦(2 * ranks + ranks / 100) * (cited['fp32-width'] * parameters)",
     "two answers alike: "),
    (DRAWN, "        misconception: loss-decides\n        why: No", "        why: No",
     "has 2 right options: \"{{ 2 * cited['fp32-width'] * parameters }}\" and", "draw-the-copy"),
    (DRAWN, "gives: model", "gives: ¦2 * model - model / 100", ": two right answers: "),
    (DRAWN, "[model >", "[¦3 * model / 2 <", ": outside the domain, 3 * model / 2 <"),
    (DRAWN, "[model >", "[¦model =", "is no condition; write `a <= b`"),
    (DRAWN, "[1000, 5000, 20000]", "[1000.3, 5000, 20000]", "KiB, not a whole number, so the law",
     "2 * cited['fp32-width'] * parameters\n        why"),
    (DRAWN, "answer: 2 * model", "answer: ¦3 * model", "of its run it is 234 KiB, and the law 'wh"),
    (DRAWN, "answer: 2 * model", "answer: ¦2 * model + model / 1000", "of its run it is 156 KiB"),
    (DRAWN, "answer: 2 * model",
     "answer: ¦2 * model - 9 * (model - tiny_memory.whole.model.bytes)",
     "a negative number, so the law does not apply"),
    (DRAWN, "gives: model", "gives: ¦2 * model - 3 * model / 100", ": two right answers: "),
    (DRAWN, "answer: 2 * model", "answer: ¦2 * modle", "unknown name 'modle'"),
    (DRAWN, "answer: 2 * model", "answer: ¦drawn('model', 3) * 2", "is the build's own"),
    (DRAWN, "{model: tiny_memory.whole.model", "¦{model: tiny_memory.whole.modle", "mean 'model'?"),
    (DRAWN, SHARE, "text: All",
     "in each option of an item with draws:", "id: draw-the-copy"),
    (QUIZ, 'text: "No"', "gives: tiny_memory.whole.model.bytes",
     "in each option of an item with draws:, and in no other"),
    (DRAWN, "law: whole-peak", "law: ¦whole-peek", "no claim 'whole-peek'"),
    (DRAWN, "[3 MiB, 5", "[3 MB, 5", "'3 MB' is no number with one of the units", "settings: {mod"),
]  # fmt: skip
CLAIMS = [
    (MEMORY, "predicted: 2 * tiny_memory.whole.model.bytes", f"predicted: {WHOLE}",
     "could refute whole-peak"),
    (MEMORY, "observed: tiny_memory.halves_budget", "observed: ¦tiny_memory.gone", "no run 'gone'"),
    (MEMORY, "predicted: \"'completed'\"", "predicted: ¦tiny_memory.halves_budget.expected_status",
     "has no field 'expected_status'; observe ended(run)"),
    (TRAINING, "does_not_hold: Averaging was",
     "does_not_hold: ¦\"{{ showed('averaging-is-slower') }}\" #",
     "cannot quote a claim's sentence"),
    (TRAINING, "for: tiny_training.averaged", "for: ¦tiny_training.gone", "no run 'gone'"),
    (TRAINING, "for: tiny_training.averaged",
     "for: [tiny_training.averaged, tiny_training.averaged]", "for: names a run twice"),
    (TRAINING, "id: averaged-bytes", "id: ¦whole-peak",
     "duplicate claim id 'whole-peak'; content/claims/tiny_memory.yml:3:9 has it already"),
    (MEMORY, "predicted: 2 * tiny_memory.whole.model.bytes", "predicted: ¦\"'run.seed'\"",
     "'run.seed': text, because it stands in quotes; name a value without them"),
    (TRAINING, "predicted: run.model.bytes", "predicted: ¦other.model.bytes", "unknown name"),
    (TRAINING, "says: The `all_reduce`", "says: ¦The {{ called }}", "unknown name 'called'"),
    (TRAINING, "predicted: run.model.bytes", "predicted: run.timing.wall_seconds",
     "seconds and bytes cannot be added or compared"),
    (MEMORY, "predicted: 2 * tiny_memory.whole.model.bytes", "predicted: ¦epsilon('1')",
     "epsilon(…) wants one of float64, float32"),
    (TRAINING, "kind: observation", "kind: law",
     "a law reads the measured time tiny_training.single.timing.step;", "tiny_training.single.tim"),
    (TRAINING, "claims:\n", "claims:\n  - id: takes-time\n    says: It does.\n    predicted: '0'\n"
     f"    relation: above\n    observed: ¦{STEP}\n", "a law reads the measured time"),
]  # fmt: skip
STATED = [
    (HOME, LAST, "repeat: It took {{ ¦12 | unit('M') }}.\n", "can change 12"),
    (HOME, LAST, "repeat: It is {{ ¦0 * tiny_memory.whole.world_size + 7 }}.\n", "can change 7"),
    (HOME, LAST, "repeat: It is ¦`3.7x faster`.\n", "it is no code; print it"),
    (HOME, LAST, "repeat: It is ¦an order of magnitude.\n".replace("¦an ", "an ¦"), "spelled"),
    (ITEMS, f"answer: {WHOLE}", "answer: ¦12 | unit('M')", "can change 12"),
    (ITEMS, THIRD, "right_if: {claim: whole-fails}\n        misconception: copies-save-memory",
     "an option is wrong"),
    (TRAINING, "for: tiny_training.averaged",
     "for:\n      - run: tiny_training.averaged\n        other: tiny_training.single",
     "reads tiny_training.single"),
    (MEMORY, "predicted: 2 * tiny_memory.whole.model.bytes\n    relation: equals",
     "predicted: 0 * tiny_memory.whole.model.bytes\n    relation: at_least",
     "could refute whole-peak"),
    (MEMORY, "    domain: everywhere\n", "", "say where the law holds: domain: {device: [cpu]"),
    (MEMORY, "fixed: the batch, ", "", "different numbers of ranks"),
]  # fmt: skip
GUIDES = [
    (GUIDE, "[halves-complete]", "[¦halves-compleat]", "no claim"),
    (GUIDE, "- id: copies-differ", "- id: ¦too-large", "duplicate symptom id 'too-large'"),
    (GUIDE, "use: split", "use: ¦splitt", "no technique 'splitt'; did you mean 'split'?"),
    (GUIDE, "continue_at: copies-differ", "continue_at: ¦copies", "no symptom 'copies'"),
    (GUIDE, "continue_at: copies-differ", "continue_at: ¦copies-differ#ask-2", "no symptom"),
    (GUIDE, "why, section: What came", "wyh, section: What came", "no lesson", "averaging/wyh"),
    (GUIDE, "            use: split\n", "", "missing key 'use' or 'edges' or 'continue_at'",
     "ask: Does a part"),
    (GUIDE, "A sum in each step.", "A sum.\n    planned: ¦tiny_memory.hole", "has no run 'hole'"),
]  # fmt: skip
MARKUP = [
    (WORKED, "model of *$b$*", "model of $¦\\foo$", 'no LaTeX: Unknown command "\\foo"'),
    (WORKED, "model of *$b$*", "model of $b = ¦42 \\,\\mathrm{ms}$", "quantity '42"),
    (WORKED, "model of *$b$*", "model of ¦$ b$", "a formula ends where its last $ touches it"),
    (WORKED, "|--------|---", "¦|---", "no table: give each column dashes"),
    (WORKED, "text: |", "text: >-", "no table", "|--------|"),
    (WORKED, "one rank[^rank]", "one rank¦[^rnak]", "no line begins with [^rnak]:"),
    (WORKED, "one rank[^rank]", "one rank", "no text names the note", "[^rank]: A"),
    (WORKED, "!!! warning", "!!! ¦waring", "no box 'waring'; did you mean 'warning'?"),
    (WORKED, "          They come", "      They come", "by four spaces", '!!! warning'),
    (WORKED, "![A model of two layers, each on a rank of its own]", "¦![]", "words for it"),
    (WORKED, "own](parts.svg)", "own](prats.svg)",
     "no such file in content/topics/averaging; did you mean 'parts.svg'?", "![A model"),
    (WORKED, "own](parts.svg)", "own](../averaging/../../site.yml)", "and is one of", "![A model"),
    (WORKED, "title: What one copy needs", 'title: "¦![a](parts.svg)"', "an image in a line"),
    (GLOSSARY, "definition: ", "definition: It ¦![a](parts.svg) ", "no other text does"),
    (QUIZ, "figure: learn#learnt", "figure: ¦learn#leant",
     "no lesson figure 'learn#leant'; did you mean 'learn#learnt'?"),
    (QUIZ, "{figure: learn#learnt}", "¦{figure: learn#learnt, log: tiny_memory.whole}", "give one"),
    (ITEMS, "log: tiny_memory.whole_budget", "log: ¦tiny_memory.whole", "printed nothing"),
    (ITEMS, "object: mean, run", "object: maen, run", "did you mean 'mean'?", "content/topics/av"),
    ("pages/marks.md", "\\frac{b}", "\\frac{¦423 s}", "bare numeral"),
    ("pages/marks.md", "parts.svg", "part.svg", "no such file in content/pages", "![Two"),
]  # fmt: skip


@pytest.mark.parametrize(
    "row",
    YAML + TEXTS + MARKUP + LESSONS + CALCULATORS + QUESTIONS + DRAWS + CLAIMS + STATED + GUIDES,
    ids=lambda row: f"{row[0].rpartition('/')[2]}: {row[3]}",
)
def test_a_mistake_is_told_at_its_place(copy, row):
    file, old, new, said, *at = row
    copy.edit(file, old, new)
    path = copy.content / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(MARK, ""), encoding="utf-8")
    place = f"content/{file}:"
    if at or MARK in new:
        before = text.partition(at[0] if at else MARK)[0].split("\n")
        place = f"{place}{len(before)}:{len(before[-1]) + 1}: "
    errors = [error.replace("\u00a0", " ") for error in copy.errors()]
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


def test_a_claim_that_stops_holding_is_told_wherever_something_rests_on_it_and_nowhere_else(copy):
    copy.edit(TRAINING, "relation: slower", "relation: faster")
    copy.edit(MEMORY, "\"'completed'\"", "\"'deadlocked'\"")
    copy.edit(MEMORY, "relation: above", "relation: below")
    told = [re.split(": does not hold|; |, which", error)[0] for error in copy.errors()]
    assert told == [
        "content/guide.yml:13:22: rests on claim 'halves-complete'",
        "content/guide.yml:42:14: rests on claim 'halves-complete'",
        "content/statements.yml:5:14: false needs a claim by which the sentence is refuted",
        "content/topics/asking/challenge.yml:23:48: holds('whole-needs-more'): "
        "the sentence rests on whole-needs-more",
        "content/topics/asking/quiz.yml:103:14: rests on claim 'averaging-is-slower'",
        "content/topics/averaging/quiz.yml:35:21: rests on claim 'averaging-is-slower'",
        "content/topics/averaging/why.yml:22:12: rests on claim 'halves-complete'",
        "content/topics/averaging/why.yml:27:12: rests on claim 'averaging-is-slower'",
    ]


def test_a_claim_over_runs_without_a_recorded_dtype_states_it(copy):
    copy.change_run("tiny_memory.halves_budget", model=None)
    (error,) = [one for one in copy.errors() if "has recorded no dtype" in one]
    assert "tiny_memory.halves_budget" in error
    copy.edit(MEMORY, "regime: {", "regime: {dtype: float32, ")
    assert not any("recorded no dtype" in one for one in copy.errors())


def test_a_mistake_in_a_question_of_several_runs_is_told_once(copy):
    copy.edit(QUIZ_TRY, "{{ run.model.bytes }}", "{{ run.model.byte }}")
    (error,) = copy.errors()
    assert "'byte'" in error


def test_a_law_without_a_formula_stands_in_no_table_of_costs(copy):
    copy.edit(MEMORY, '    formula: "`2 · bytes of its layers`"\n', "")
    said = "part-peak prints no formula; give the claim formula:"
    assert copy.errors() == [f"content/{COST}:12:14: {said}"]


def test_a_listed_program_that_is_no_python_is_told_where_it_is_named(copy):
    copy.edit(f"{SHARDING}/code/halve.py", "def halve(", "def halve((")
    said = "content/topics/sharding/code/halve.py:"
    assert any(e.startswith(f"content/{EXPERIMENT}:") and said in e for e in copy.errors())


def test_output_is_shown_only_below_the_program_that_printed_it(copy):
    settings = copy.recorded("tiny_training.averaged")["settings"]
    for executed, num in ("mean.py", 0), ("other.py", 1):
        program = f"content/{AVERAGING}/code/{executed}"
        copy.change_run("tiny_training.averaged", settings={**settings, "program": program})
        said = f"tiny_training.averaged executed {program}, not this file"
        told = [error for error in copy.errors() if error.startswith(f"content/{LEARN}")]
        assert [error.endswith(said) for error in told] == [True] * num


def test_a_section_that_its_lesson_does_not_have_is_refused_when_pages_are_printed(copy):
    copy.edit(GUIDE, "section: What came before", "section: What came next")
    said = "averaging/why has no section 'What came next'; did you mean 'What came before'?"
    with pytest.raises(ContentErrors, match=re.escape(f"content/{GUIDE}:19:52: {said}")):
        render(copy.load())
