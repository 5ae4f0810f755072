"""Records to tables, figures and pages. Reads run folders only; never loads a model or TensorFlow."""
