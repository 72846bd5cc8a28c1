"""Instructions that a program can check: "exactly 8 words", "only lowercase", "no commas".

    instructions                    to train on
    instructions@held-out           the same kinds of instruction, on topics never trained on
    instructions@new-constraints    kinds of instruction never trained on

constraints.py has them, each with a pure function of the text. prompts.py makes prompts of them,
and says what counts as an answer, since only an answer is rewarded. In the manner of IFEval (Zhou
et al. 2023, "Instruction-Following Evaluation for Large Language Models").
"""

from .prompts import Instructions, score

__all__ = ["Instructions", "score"]
