"""Pages and plots of runs."""
