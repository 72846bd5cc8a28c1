"""Whether two trees denote the same: interpreter.py turns each into an object (math_objects.py),
comparison.py compares the two objects, equality.py two expressions."""
