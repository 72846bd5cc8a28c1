"""What answers the model. Start with conversation.py.

    model          Is it 32?       drawn, and trained on
    environment    higher          read, and masked
    model          Is it 48?
    environment    correct: it is over, and it returns the rewards

A plain problem is the environment that never replies. `sampling.py` knows only the Partner, who
reads tokens and replies with tokens; here are the environments, which work with text:

    conversation.py   the interface, and an Environment as a Partner
    guess.py          higher or lower: the model has to find a number
    retry.py          an incorrect answer may be corrected once
    calculator.py     works out a sum in the middle of an answer
    tools.py          classes whose methods are tools
    tool_schema.py    what the model is shown of a tool, and which calls match it

`rfs train --environment FILE.py:CLASS` takes one of your own. It may use the problems and the
grader, and knows nothing of models, runs and reports.
"""
