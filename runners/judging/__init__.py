"""Judges what ranks did: the same as one process? how many bytes? what peak? which calls?

A *program* is a function of a rank. `ranks.run` starts it on gloo ranks, each under the meter of
memory and collectives, and brings back what each returned, called and held, or how it failed.
`comparison` sets that beside what one process computes and what laws allow; each comparison
agrees, differs, or was not made, with the reason, and one that was not made never counts as
agreeing. `judged` has the same as assertions, and `proofbook/judging.py` as a fixture of pytest:

    def averaged(rank):
        gradient = torch.full((4,), float(rank.rank))
        dist.all_reduce(gradient)
        return {"gradient": gradient / rank.world_size}

    def mean(dtype):
        return {"gradient": torch.full((4,), 1.5, dtype=dtype)}

    def test_the_gradient_is_the_mean(judge):
        ranks = judge(averaged, 4)
        ranks.assert_same_as_one_process(mean)
        ranks.assert_sends({"all_reduce": 16})

A program is found by its module and name, as `multiprocessing` finds it, so it stands at the top
level of its file.
"""
