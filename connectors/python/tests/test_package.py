from importlib.metadata import files, requires

import headgate


def test_installed_from_the_wheel() -> None:
    assert "site-packages" in headgate.__file__
    assert "headgate/py.typed" in {str(f) for f in files("headgate") or ()}
    assert requires("headgate") == ["PyJWT[crypto]>=2.10"]
