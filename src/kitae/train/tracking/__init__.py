"""Trackers that follow a training's metrics file: TensorBoard, Weights & Biases, MLflow, trackio."""
