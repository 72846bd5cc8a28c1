"""Trees to values: exact arithmetic on sums of products (polynomials.py), quotients of them
(forms.py), powers, functions and the proof that a number is zero; numeric.py computes many digits
of what exact arithmetic cannot decide."""
