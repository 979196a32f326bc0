"""A robot among obstacles: where it stands, what it may touch, and what its spheres leave out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import warp_collision
from warp_collision import MeshWorld, RobotSpheres, joint_path_clearance
from warp_collision.messages import escaped, one_line
from warp_collision.robot.allowed_contacts import contact_parts
from warp_collision.torch_ops import operators

_RESOLUTION = 5e-3  # m, by which a share that is covered may be too small


class RobotScene(NamedTuple):
    """A robot among obstacles.

    Attributes:
        robot: the robot.
        world: the obstacles, one env.
        base_pose: (7,) of the root link in the world; the origin if None.
        ignore: pairs of a link and an obstacle that may touch.
    """

    robot: RobotSpheres
    world: MeshWorld
    base_pose: Tensor | None = None
    ignore: tuple[tuple[str, str], ...] = ()

    @property
    def placed(self) -> dict[str, Any]:
        """What checks of the robot take, by the names of arguments."""
        return {"ignore": self.ignore, "base_pose": self.base_pose}

    def spheres(self, joints: Tensor) -> Tensor:
        """Spheres (..., n_spheres, 4) at joint values (..., n_joints)."""
        return self.robot(joints.to(self.world.device), self.base_pose)

    def clearance(self, spheres: Tensor) -> tuple[Tensor, Tensor]:
        """Clearance of spheres (batch, horizon, n_spheres, 4), and the nearest obstacle, int.

        Contacts that are wanted are left out.
        """
        if not self.ignore:
            found = warp_collision.clearance(spheres, self.world)
            return found.clearance, found.mesh
        smallest = torch.full_like(spheres[..., 3], torch.inf)
        nearest = torch.full_like(smallest, -1, dtype=torch.int32)
        for part in contact_parts(self.ignore, self.robot, self.world):
            balls = part.disable(spheres, self.robot)
            points = balls[..., :3].flatten(1, 2).contiguous()
            distance, _, mesh = operators.run_scene_distance(points, part.scene, None)
            found = distance.view_as(smallest) - balls[..., 3]
            nearer = ~(balls[..., 3] < 0.0) & ~(found >= smallest)
            smallest = torch.where(nearer, found, smallest)
            nearest = torch.where(nearer, mesh.view_as(nearest), nearest)
        return smallest, nearest

    def nearest_on(self, joints: Tensor, tolerance: float) -> str:
        """What comes nearest on a path (1, horizon, n_joints), and where, in words."""
        found = joint_path_clearance(
            joints, self.robot, self.world, tolerance=tolerance, **self.placed
        )
        links = self.robot.sphere_links
        segment, own = int(found.upper.argmin()), int(found.self_upper.argmin())
        if found.self_upper[0, own] < found.upper[0, segment]:
            segment = own
            two = found.self_sphere, found.self_other
            first, second = (links[int(sphere[0, own])] for sphere in two)
        else:
            first = links[int(found.sphere[0, segment])]
            second = self.world.names()[int(found.mesh[0, segment])]
        return (
            f"{escaped(first, 40)} and {escaped(second, 40)}, between waypoints {segment} and "
            f"{segment + 1}"
        )


class Uncovered(NamedTuple):
    """What the spheres of a robot leave out of what its links look like.

    Attributes:
        share: by link, up to how much of the surface lies in no sphere; links that are covered
            are left out.
        bare: links with shapes, but without spheres.
        unknown: by link, why it is not known.
    """

    share: dict[str, float]
    bare: tuple[str, ...]
    unknown: dict[str, str]

    def summary(self) -> dict[str, Any]:
        """For JSON; null where it is not known."""
        shares = {**self.share, **dict.fromkeys(self.unknown)}
        return {"uncovered": shares, "links_without_spheres": list(self.bare)}

    def lines(self) -> list[str]:
        """Lines for a report, none if all is covered."""
        lines = []
        if self.unknown:
            link, why = next(iter(self.unknown.items()))
            others = f" and {len(self.unknown) - 1} more links" if len(self.unknown) > 1 else ""
            lines.append(
                f"not known is what the spheres leave out of {escaped(link, 40)}{others}: {why}"
            )
        if self.share:
            worst = max(self.share, key=lambda link: self.share[link])
            others = len(self.share) - 1
            lines.append(
                f"the spheres leave out up to {100 * self.share[worst]:.0f} % of the surface of "
                f"{escaped(worst, 40)}" + (f", and parts of {others} more links" if others else "")
            )
        if self.bare:
            lines.append(f"links without spheres: {escaped(', '.join(self.bare), 200)}")
        return lines


def uncovered(robot: RobotSpheres) -> Uncovered:
    """What the spheres of a robot leave out; fitted ones leave out nothing."""
    bare = tuple(robot.links_without_spheres)
    given = [link for link in robot.link_names if link not in robot.fits and link not in bare]
    share, unknown = {}, {}
    for link in given:
        try:
            found = robot.coverage(resolution=_RESOLUTION, links=[link])
        except (OSError, ValueError, ImportError) as error:
            unknown[link] = one_line(error)
        else:
            share |= {name: cover.uncovered for name, cover in found.items() if cover.uncovered}
    return Uncovered(share, bare, unknown)
