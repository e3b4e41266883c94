"""Train a model: `python train/train.py train/td260k.toml --data FOLDER -o FOLDER`."""

from __future__ import annotations

from pathlib import Path

import click

from fit import fit
from recipe import load_recipe
from smoke import smoke
from tidemill.model.checkpoint import ModelError

Folder = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("recipe", required=False, type=click.Path(path_type=Path))
@click.option("--data", metavar="FOLDER", type=Folder, help="What train/prepare.py wrote.")
@click.option("-o", "--out", metavar="FOLDER", type=Folder, help="State, log and exported model.")
@click.option("--resume", is_flag=True, help="Go on with the run in the output folder.")
@click.option("--seed", metavar="N", type=click.IntRange(0), help="Instead of the recipe's.")
@click.option("--steps", metavar="N", type=click.IntRange(1), help="Instead of the recipe's.")
@click.option(
    "--stop", metavar="N", type=click.IntRange(1), help="Stop after step N, to be resumed."
)
@click.option(
    "--threads", metavar="N", default=1, show_default=True, type=click.IntRange(1), help="CPUs."
)
@click.option(
    "--every",
    metavar="N",
    default=500,
    show_default=True,
    type=click.IntRange(1),
    help="Steps between validations; each also writes the state and the model.",
)
@click.option("--smoke", "only_smoke", is_flag=True, help="A run of seconds that checks itself.")
def main(
    recipe: Path | None,
    data: Path | None,
    out: Path | None,
    resume: bool,
    seed: int | None,
    steps: int | None,
    stop: int | None,
    threads: int,
    every: int,
    only_smoke: bool,
) -> None:
    """Train the model that RECIPE (a TOML file) describes and write it as a llama2.c file."""
    try:
        if only_smoke:
            smoke(click.echo)
            return
        if recipe is None or data is None or out is None:
            raise click.UsageError("RECIPE, --data and --out are needed, or --smoke alone")
        given = {"seed": seed, "steps": steps}
        plan = load_recipe(recipe, **{k: v for k, v in given.items() if v is not None})
        click.echo(
            f"{plan.model.parameters:,} parameters, {plan.steps:,} steps of "
            f"{plan.tokens_per_step:,} tokens"
        )
        fit(plan, data, out, stop=stop, resume=resume, threads=threads, every=every, say=click.echo)
    except ModelError as e:
        raise click.ClickException(str(e)) from None
    click.echo(f"wrote {out / 'model.bin'}")


if __name__ == "__main__":
    main()
