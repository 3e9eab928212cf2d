"""What an op's definition says and what follows from it; the families are beside this folder."""
