"""From a symptom to a technique."""
