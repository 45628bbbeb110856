"""A check shared by all selectors that use devices."""

from fedjax_sel.catalog import see
from fedjax_sel.types import Context


@see("docs/how-to/devices.md")
def check_devices(selector: str, ctx: Context) -> None:
    """Raises `ValueError` if the clients have no devices."""
    if ctx.devices is None or ctx.timing is None:
        raise ValueError(
            f"{selector} selects by what devices can do, but the clients have none; give them some: devices=lognormal "
            "in a configuration, Federation(..., devices=devices.laws.LogNormal()) in Python"
        )
