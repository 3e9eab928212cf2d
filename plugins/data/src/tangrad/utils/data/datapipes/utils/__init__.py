"""What pipes of several kinds share."""
