"""Draw what people look at: terminal pictures, progress, figures."""
