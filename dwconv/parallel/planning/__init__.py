"""Plans of pipelines, computed: layers and their costs, stages, a step of a plan event by event, and its picture."""
