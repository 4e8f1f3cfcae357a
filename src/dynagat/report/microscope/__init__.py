"""The microscope's page: how attentive a model is, as a self-contained HTML file."""

from dynagat.report.microscope.page import microscope, write_microscope

__all__ = ["microscope", "write_microscope"]
