"""What people look at: terminal pictures, progress, figures."""
