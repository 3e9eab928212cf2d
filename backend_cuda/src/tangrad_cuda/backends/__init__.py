"""Hold what is shown as `tangrad.backends.cuda` and `tangrad.backends.cudnn`."""
