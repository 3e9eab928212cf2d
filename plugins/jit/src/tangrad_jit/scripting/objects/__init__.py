"""What scripting makes: functions and modules that Python calls."""
