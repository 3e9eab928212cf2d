"""Prove every combination of packages in one environment: what continuous integration runs.

`steps` says what is proved and how long each step may take, `sampling` chooses the tests that fit,
`environment` installs one combination of wheels, `running` runs the steps and tells what failed.
"""
