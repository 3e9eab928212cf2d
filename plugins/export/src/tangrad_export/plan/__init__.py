"""What is decided between the steps and the text: fusion, sizes that vary, the arena."""
