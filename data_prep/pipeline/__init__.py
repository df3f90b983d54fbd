"""The engine of `data_prep.prepare`: elements of the input, phases over them, runners of phases.

An element is a bundle of consecutive input files. A phase is a function of (context, number) that
reads files and writes files, each under its final name only when complete. So a phase may be
computed anywhere, again or not at all if its result is there: what is written depends on the
element and the options alone, neither on workers nor on time. A runner decides where and when.
"""
