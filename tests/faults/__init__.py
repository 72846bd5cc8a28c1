"""A package, so that its conftest.py does not take the place of the one above."""
