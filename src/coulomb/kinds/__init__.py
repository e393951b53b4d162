"""Kinds of columns: how to read a cell, stack cells, make views of a stack and preview a cell."""
