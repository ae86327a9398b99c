"""Private servers for the tests: on free loopback ports, in temporary directories, ended by their starter."""
