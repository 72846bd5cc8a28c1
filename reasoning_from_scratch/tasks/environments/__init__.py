"""What answers the model. Start with conversation.py.

    model          Is it 32?       drawn, and trained on
    environment    higher          read, and masked
    model          Is it 48?
    environment    right: it is over, and it says what the rollout is paid

A plain problem is the environment that never replies. `sampling.py` knows only the Partner, who
hears tokens and says tokens; here are the environments, which hear text and say text:

    conversation.py   the interface, and an Environment as a Partner
    guess.py          higher or lower: a number is to be found
    retry.py          a wrong answer may be mended once
    calculator.py     works out a sum in the middle of an answer
    tools.py          classes whose methods are tools
    tool_words.py     what the model is told of a tool, and which calls fit that

`rfs train --environment FILE.py:CLASS` takes one of your own. It may use the problems and the
grader, and knows nothing of models, runs and reports.
"""
