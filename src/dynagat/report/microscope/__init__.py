"""The microscope's page: how attentive a model is, to look into with a browser and no network."""

from dynagat.report.microscope.page import microscope, write_microscope

__all__ = ["microscope", "write_microscope"]
