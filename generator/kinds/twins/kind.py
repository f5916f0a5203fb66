"""Each page as Markdown beside it, and the list of all."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    slots={"beside a page": ".markdown_pages:twin", "beside all": ".markdown_pages:llms_txt"}
)
