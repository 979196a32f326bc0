"""A robot as spheres on its links: read from files, with attached objects and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from warp_collision import validate
from warp_collision.io.placing import joined, matrix_from
from warp_collision.messages import shown
from warp_collision.obstacles.mesh_obstacle import PoseLike
from warp_collision.queries.dispatch import reads_values
from warp_collision.robot.collision_report import CollisionReport, report_collisions
from warp_collision.robot.coverage import Coverage, coverage
from warp_collision.robot.description import PathLike
from warp_collision.robot.fitting import DEFAULT_OVERSHOOT
from warp_collision.robot.link_shapes import mesh_in_link, spheres_of_object
from warp_collision.robot.robot_files import read_robot
from warp_collision.robot.robot_model import Attachment, RobotModel
from warp_collision.robot.self_collision import SelfCollisionPairs
from warp_collision.robot.sphere_files import write_spheres
from warp_collision.robot.sphere_models import Body, inflated, moved, require_links
from warp_collision.world import MeshWorld

_MAX_ENVS = 1 << 20  # tables of a robot have a row for each


class RobotSpheres(RobotModel):
    """The spheres on a robot's links, moved by forward kinematics.

    Reads the links, joints and shapes of a URDF file. Revolute, continuous and prismatic joints
    have one joint value each, in the order of the file; mimic joints follow another one's. The root
    link is at the origin of the world frame, or at the `base_pose` of a call; a floating joint is
    allowed between the root link and all others, and is part of that pose.

    Collision shapes other than spheres are covered by spheres, see `fit_spheres`, unless `spheres`
    are given. Whatever would be missing from collision checks raises: links, joints and shapes
    inside other elements than their own (except `<gazebo>`, `<transmission>` and `<ros2_control>`),
    a second shape in one `<collision>`, xacro macros, planar joints.

    Args:
        urdf: Path of the URDF file. Mesh file names in it are relative to its folder, ``file://``
            or ``package://``.
        spheres: Instead of the collision shapes of the URDF: a mapping of links to rows x, y, z,
            radius in the frame of the link [m], or the path of a robot YAML of cuRobo: its
            `collision_spheres`, inline or a path, of its `collision_link_names`, inflated by
            `collision_sphere_buffer`; `extra_collision_spheres`, disabled; `extra_links` that are
            fixed; `self_collision_ignore` and `self_collision_buffer`; `lock_joints`. A radius
            below 0 disables a sphere.
        srdf: Path of an SRDF; the pairs of links that it disables are not checked against each
            other.
        package_dirs: Folders of packages, or packages, for ``package://``; the folders above the
            URDF are searched too.
        max_overshoot: How far fitted spheres may extend beyond a shape [m]; a mesh longer than 1000
            times that raises, as it would be in millimetres.
        padding: Added to the radii of the spheres of all links, or of some [m].
        lock_joints: Values of locked joints [rad, prismatic: m], within their limits, which become
            fixed joints, as do the mimic joints that follow them. None frees a joint that a robot
            YAML locks.

    Attributes:
        joint_names: Names of the joints with a value, in the order of the joint values.
        joint_units: For each of them "rad", or "m" if it slides.
        joint_limits: (n_joints, 2) float32, lower and upper limit [rad or m], infinite without one.
        link_names: Names of all links, in the order of the file.
        link_meshes: The visual meshes of the links (not loaded).
        links_without_spheres: Links that have a `<collision>` or `<visual>` of any kind, but no
            spheres, or disabled ones alone: they are not checked.
        fits: For each link with fitted shapes a `Coverage` of each.
        locked_joints: Values of the locked joints.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: It is not a URDF, not a tree, has no spheres, or has parts not supported here;
            spheres, pairs or locks name unknown links or joints; a lock is beyond its limits. The
            message names the file and the link or joint.

    Example:
        >>> from importlib.resources import files
        >>> from warp_collision.robot import RobotSpheres
        >>> panda = RobotSpheres(str(files("warp_collision.assets") / "panda" / "panda.urdf"))
        >>> len(panda.joint_names), len(panda.sphere_links)
        (7, 59)
        >>> panda.link_meshes[0].link  # a `LinkMesh`
        'panda_link0'
    """

    def __init__(
        self,
        urdf: PathLike,
        *,
        spheres: PathLike | Mapping[str, Any] | None = None,
        srdf: PathLike | None = None,
        package_dirs: Sequence[PathLike] = (),
        max_overshoot: float = DEFAULT_OVERSHOOT,
        padding: float | Mapping[str, float] = 0.0,
        lock_joints: Mapping[str, float | None] | None = None,
    ):
        locks = {} if lock_joints is None else lock_joints
        files = read_robot(urdf, spheres, srdf, package_dirs, max_overshoot, padding, locks)
        super().__init__(files)
        self.link_meshes = list(files.link_meshes)
        self.links_without_spheres, self.fits = files.links_without_spheres, files.fits
        self.locked_joints = files.locked

    @property
    def attached(self) -> tuple[str, ...]:
        """Names of attached objects."""
        return tuple(self._attached)

    def spheres_of(self, name: str) -> np.ndarray:
        """Spheres (n, 4) float64 of a link or attached object, in the frame of the link [m]."""
        if name in self._layout.bodies:
            return self._layout.bodies[name].spheres.copy()
        require_links("name", [name], self.link_names)
        return np.empty((0, 4))

    def attach(
        self,
        name: str,
        link: str,
        spheres: Any,
        *,
        pose: Any = None,
        touch_links: Sequence[str] = (),
        padding: float = 0.0,
        max_overshoot: float = DEFAULT_OVERSHOOT,
        envs: Iterable[int] | None = None,
    ) -> None:
        """Attaches an object to a link, for example one in the gripper.

        Its spheres are added to those of the robot. `SelfCollisionPairs` made before do not fit the
        robot any more: create new ones.

        Args:
            name: of the object, in `sphere_links`.
            link: the link that it moves with, and may touch.
            spheres: rows x, y, z, radius [m]; or what `MeshWorld.add` takes, which is filled with
                spheres by `fit_spheres`.
            pose: x, y, z, qw, qx, qy, qz of the object in the frame of the link.
            touch_links: other links that it may touch.
            padding: added to the radii of the spheres [m].
            max_overshoot: how far fitted spheres may extend beyond the shape [m].
            envs: envs in which it is attached, all if None; in others its spheres are disabled. For
                batch rows with different objects attach each in its own envs, and pass `env_index`
                to calls of the robot and to the checks.

        Raises:
            TypeError, ValueError: no spheres or mesh, an unknown link, a name that is in use.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> panda = load_panda()
            >>> panda.attach("can", "panda_hand", [[0.0, 0.0, 0.12, 0.04]])
            >>> panda(torch.zeros(7)).shape, panda.sphere_links.count("can")
            (torch.Size([60, 4]), 1)
            >>> panda.detach("can")
        """
        validate.require_name("name", name)
        if name in self._layout.names:
            raise ValueError(f"name must be new to the robot, got {shown(name)}")
        require_links("link", [link], self.link_names)
        require_links("touch_links", touch_links, self._layout.names)
        rows = inflated(spheres_of_object(name, spheres, max_overshoot), padding)
        if pose is not None:
            rows = moved(rows, matrix_from(validate.check_pose("pose", pose).tolist()))
        chosen = None if envs is None else _checked_envs(envs)
        self._attached[name] = Attachment(Body(link, rows), tuple(touch_links), chosen)
        self._update_layout()

    def detach(self, name: str) -> None:
        """Detaches an object.

        Raises:
            ValueError: no object of this name is attached.
        """
        if name not in self._attached:
            raise ValueError(f"name must be one of {shown([*self._attached])}, got {shown(name)}")
        del self._attached[name]
        self._update_layout()

    def save_spheres(self, path: PathLike) -> None:
        """Writes the spheres of the links to a YAML file, which `spheres=` reads back as they are.

        Fitting them again is saved so. Padding is included, attached objects are not.

        Raises:
            ValueError: the spheres came from a robot file that says more, which would be lost.
        """
        write_spheres(path, self._files.spheres)

    def coverage(
        self, *, resolution: float = 1e-3, links: Iterable[str] | None = None
    ) -> dict[str, Coverage]:
        """How well the spheres of each link cover its shapes, see `coverage`.

        The shapes are the collision shapes other than spheres, or the visual meshes of links that
        have none; links without such shapes are left out.

        Args:
            resolution: see `coverage`.
            links: which ones; all if None.

        Raises:
            ValueError: an unknown link.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> found = load_panda().coverage(resolution=0.01)["panda_link0"]
            >>> found.count, found.uncovered > 0.7
            (1, True)
        """
        chosen = self.link_names if links is None else tuple(links)
        require_links("links", chosen, self.link_names)
        return {
            link: coverage(
                self.spheres_of(link), joined([*map(mesh_in_link, shapes)]), resolution=resolution
            )
            for link, shapes in self._files.shapes.items()
            if link in chosen
        }

    @reads_values
    def report(
        self,
        configurations: Tensor,
        world: MeshWorld,
        *,
        margin: float = 0.0,
        self_collision: bool | SelfCollisionPairs = True,
        ignore: Iterable[tuple[str, str]] = (),
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ) -> CollisionReport:
        """Reports which links collide with what at waypoints, deepest first.

        Args:
            configurations: joints (batch, horizon, n_joints), or spheres (batch, horizon,
                n_spheres, 4) of this robot, on the device of the world.
            world: the obstacles.
            margin: clearance [m] below which a pair is listed.
            self_collision: whether self-collisions are reported, by the pairs of
                `self_collision_pairs`; or the pairs to check.
            ignore: allowed contacts, pairs of a link, or attached object, and an obstacle.
            env_index: (batch,) int32, the env of each row; env 0 for all if None.
            base_pose: see a call; for joints.

        Returns:
            See `CollisionReport`; its `str` is a table.

        Raises:
            TypeError, ValueError: an argument of another type, shape, device or range, or unknown
                names in `ignore`.
            RuntimeError: inside of a transform of `torch.func`.

        Example:
            >>> import torch
            >>> from warp_collision import Cylinder, MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> world = MeshWorld()
            >>> world.add("can", Cylinder(0.1, 0.3), (0.5, 0.0, 0.5, 1, 0, 0, 0))
            0
            >>> joints = torch.tensor([[[0.0, 0.4, 0, -1.6, 0, 2, 0.8]]])
            >>> load_panda().report(joints, world).link[0]
            'panda_link6'
        """
        spheres, joints = configurations, None
        if isinstance(configurations, Tensor) and configurations.ndim == 3:
            spheres, joints = self(configurations, base_pose, env_index), configurations
        elif base_pose is not None:
            raise ValueError("base_pose must be None for spheres, which are in the world")
        pairs = self.default_pairs if self_collision is True else self_collision or None
        report = report_collisions(spheres, self._layout, world, pairs, margin, ignore, env_index)
        report = report._replace(links_without_spheres=self.links_without_spheres)
        if joints is None:
            return report
        return report.with_limits(joints, self.joint_limits, self.joint_names)


def _checked_envs(envs: Iterable[int]) -> frozenset[int]:
    found = list(envs)
    if not found:
        raise ValueError("envs must not be empty, got none")
    for env in found:
        if not isinstance(env, int) or isinstance(env, bool):
            raise TypeError(f"envs must be integers, got {shown(env)}")
        if not 0 <= env < _MAX_ENVS:
            raise ValueError(f"envs must be from 0 to {_MAX_ENVS - 1}, got {env}")
    return frozenset(found)
