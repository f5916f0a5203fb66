"""`python -m runners show`: what it prints is what an author can paste."""

from runners.commands.show import lines


def test_every_expression_that_show_lists_prints_when_it_is_pasted(book, evidence):
    refused, num_listed = {}, 0
    for shown in book.traces.values():
        for line in lines(shown.trace):
            expression = line.removeprefix("{{ ").partition(" }}  ")[0]
            found = evidence.evaluate(expression)
            problem = evidence.unprintable(found) or found.absent
            refused |= {expression: str(problem)} if problem else {}
            num_listed += 1
    assert refused == {}
    assert num_listed > 300
