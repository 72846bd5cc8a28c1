"""Text to trees: boxes.py finds the answer in a model's text, lexer.py cuts it into tokens, and
statements.py, quantities.py, expressions.py and brackets.py read the tokens into a tree (trees.py).
"""
