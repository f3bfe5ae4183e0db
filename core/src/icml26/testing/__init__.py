"""The conformance kit: what every plugin owes, as checks that authors run on their own."""
