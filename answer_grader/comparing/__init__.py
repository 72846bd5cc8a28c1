"""Whether two trees say the same: kinds.py settles what kind of thing each is (things.py),
comparison.py compares two things of one kind, equality.py two expressions."""
