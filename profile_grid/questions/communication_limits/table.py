"""The tables on limits of communication: one feed-forward layer by layout, and the cost of buckets."""

from profile_grid.questions.communication_limits.buckets import BUCKET_COSTS
from profile_grid.questions.communication_limits.limits import LAYER_LIMITS
from profile_grid.study.table_spec import PageTable

TABLES = (LAYER_LIMITS, BUCKET_COSTS)
PAGE_TABLES = (
    PageTable("layer_limits", "One feed-forward layer on several GPUs"),
    PageTable("bucket_costs", "Cost of buckets: predicted from other sizes, and measured"),
)
