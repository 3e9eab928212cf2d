"""What values of the script language are: types, and how annotations name them."""
