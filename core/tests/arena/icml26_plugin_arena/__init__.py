"""A plugin for tests of benches: a contest of guessing a mean, with every role and every way to fit or not."""
