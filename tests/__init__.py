"""A package, so that its folders may have the names of the rooms that they test."""
