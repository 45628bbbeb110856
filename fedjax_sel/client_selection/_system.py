"""A check that all selectors by devices share."""

from fedjax_sel.catalog import see
from fedjax_sel.types import Context


@see("docs/how-to/devices.md")
def check_devices(selector: str, ctx: Context) -> None:
    """Raises `ValueError` where the clients have no devices."""
    if ctx.devices is None or ctx.timing is None:
        raise ValueError(
            f"{selector} selects by what devices can do, but the clients have none; give them some: devices=lognormal "
            "in a configuration, Federation(..., devices=devices.laws.LogNormal()) in Python"
        )
