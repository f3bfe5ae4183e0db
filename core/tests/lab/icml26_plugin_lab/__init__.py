"""A plugin whose method does what tests of executors need: nothing, or every sort of harm."""
