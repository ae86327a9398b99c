"""Programs to read and run; `README.md` beside this file says what each shows."""
