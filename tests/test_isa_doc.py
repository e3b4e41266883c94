from tidemill import isa, isa_doc
from tidemill.chip import CHIPS


def test_page_is_up_to_date():
    assert isa_doc.PAGE.read_text() == isa_doc.render(), (
        "docs/isa.md differs from tidemill/isa.py; write it anew: python -m tidemill.isa_doc"
    )


def test_page_names_everything():
    page = isa_doc.render()
    for queue in isa.QUEUES:
        assert f"## {queue.index}. {queue.name}\n" in page
        for op in queue.ops:
            assert f"| `{op.mnemonic}` | {op.code} |" in page
        for name in queue.reserved:
            assert f"`{name}` (" in page
    for enum in (isa.Kind, isa.Ctrl, isa.Seg, isa.Base, isa.ASrc, isa.BSrc, isa.Func, isa.Mask):
        for member in enum:
            assert f"| {member.value} | `{member.name}` |" in page
    for enum in (isa.Red, isa.Space, isa.Config, isa.Fault):
        for member in enum:
            assert f"| {member.value} | `{member.name}` |" in page
    for chip in CHIPS:
        assert f"d_func, {chip}" in page


def test_member_comments_are_found():
    assert "lanes with i > p read as 0" in isa_doc.render()


def test_main_writes_the_given_file(tmp_path, monkeypatch):
    target = tmp_path / "isa.md"
    monkeypatch.setattr("sys.argv", ["isa_doc", str(target)])
    isa_doc.main()
    assert target.read_text() == isa_doc.render()
