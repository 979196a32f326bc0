"""A robot as spheres on its links: files, attached objects, self-collision pairs, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import torch_private, validate
from warp_collision.io.placing import joined, matrix_from
from warp_collision.messages import MAX_REPR, escaped, known_names, short_repr
from warp_collision.notebooks import notebook_html
from warp_collision.poses import PoseLike
from warp_collision.queries import dispatch
from warp_collision.queries.dispatch import outside_graphs, reads_values
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.fit_cache import cached_coverage
from warp_collision.robot.model.collision_report import CollisionReport, ReportedScene
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.link_pairs import (
    CARRIED,
    IGNORED,
    LeftOutPair,
    SelfCollisionPairs,
    checked_pairs,
)
from warp_collision.robot.model.link_shapes import body_of_object, mesh_in_link
from warp_collision.robot.model.link_spheres import LinkSpheres
from warp_collision.robot.model.robot_description import (
    RobotDescription,
    read_robot,
    read_robot_file,
    write_robot,
)
from warp_collision.robot.model.robot_text import robot_text
from warp_collision.robot.model.sampled_pairs import contact_counts, sampled_pairs
from warp_collision.robot.model.self_collision_matrix import SelfCollisionMatrix, matrix_of
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.robot.model.sphere_model import Body, require_links, write_spheres
from warp_collision.robot.model.srdf import Srdf
from warp_collision.robot.model.urdf_model import PathLike
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world

_MAX_ENVS = 1 << 20  # tables of a robot have a row for each


class RobotSpheres(LinkSpheres):
    """The spheres on a robot's links, moved by forward kinematics.

    Reads the links, joints and shapes of a URDF file. Revolute, continuous and prismatic joints
    have one joint value each, in the order of the file; mimic joints follow another one's. The root
    link is at the origin of the world frame, or at a `base_pose`. A floating joint is allowed
    between the root link and all others, and is part of that pose.

    Collision shapes other than spheres are covered by spheres, see `fit_spheres`, unless `spheres`
    are given. Whatever checks would miss raises: misplaced links, joints and shapes (except in
    extensions such as `<gazebo>`), a second shape in one `<collision>`, xacro macros, planar
    joints. Limits that look like degrees or millimetres are a warning.

    Args:
        urdf: Path of the URDF file. Mesh file names in it are relative to its folder, ``file://``
            or ``package://``. Or of a robot that `save` wrote, a .yaml, without other options than
            `package_dirs`: see `from_file`.
        spheres: Replace the collision shapes of the URDF. Either a mapping of links to rows x, y,
            z, radius in the frame of the link [m], where a radius below 0 disables a sphere. Or a
            robot YAML of cuRobo. Of that are read: `collision_spheres`, inline or a path, of
            `collision_link_names`, inflated by `collision_sphere_buffer`;
            `extra_collision_spheres`, disabled; `extra_links` that are fixed;
            `self_collision_ignore` and `self_collision_buffer`; `lock_joints`.
        srdf: Path of an SRDF; the pairs of links that it disables are not checked against each
            other.
        package_dirs: Folders of packages, or packages, for ``package://``; the folders above the
            URDF, ROS_PACKAGE_PATH and AMENT_PREFIX_PATH are searched too.
        max_overshoot: How far fitted spheres may extend beyond a shape [m], of all links or of
            some. Of the others, and by default, it is chosen by the link's size: a 20th of it, or
            larger where that would take more than 40 spheres. A mesh longer than 1000 times that,
            or 20 m by default, raises, as it would be in millimetres.
        piece_overshoot: How far convex pieces may extend beyond a shape [m]; its triangles decide
            where they extend farther. By default 2 mm, or 1 % of its size, and 2 % of its volume.
        padding: Added to the radii of the spheres of all links, or of some [m].
        group: Name of a planning group of the SRDF: its joints alone have values, all others are
            held, at `state` or neutral: at 0, or in the middle of limits without 0.
        state: Name of a state of the SRDF, of any of its groups, at which other joints are held.
        lock_joints: Values of locked joints [rad, prismatic: m], within their limits, which become
            fixed joints, as do the mimic joints that follow them. None frees a joint that a robot
            YAML locks.
        shapes: "collision", or "visual": links without collision shapes are covered by their
            visual ones.
        progress: Called before the shapes of a link are fitted, with its name, its number from 1,
            and the number of links to fit; by default a line on standard error names one each 3 s.

    Attributes:
        joint_names: Names of the joints with a value, in the order of the joint values.
        joint_units: For each of them "rad", or "m" if it slides.
        joint_limits: (n_joints, 2) float32, lower and upper limit [rad or m], infinite without one.
        velocity_limits: (n_joints,) float64, of the URDF [rad/s or m/s], infinite without one.
        link_names: Names of all links, in the order of the file.
        link_meshes: The visual meshes of the links (not loaded).
        link_shapes: For each link the shapes that its spheres approximate (not loaded): its
            collision shapes other than spheres, or its visual meshes.
        links_without_spheres: Links with a `<collision>` or `<visual>`, but no enabled sphere.
        fits: For each link with fitted shapes a `Coverage` of each.
        locked_joints: Values of the locked joints, and of those that are held.
        named_states: Of the SRDF, values of joints by the names of the states.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: The file is not a URDF, not a tree, has no spheres, or has unsupported parts.
            Spheres, pairs or locks name unknown links or joints. A lock is beyond its limits.

    Example:
        >>> from importlib.resources import files
        >>> from warp_collision.robot import RobotSpheres
        >>> panda = RobotSpheres(str(files("warp_collision.assets") / "panda" / "panda.urdf"))
        >>> len(panda.joint_names), len(panda.sphere_links)
        (7, 59)
        >>> panda.link_meshes[0].link  # a `LinkMesh`
        'panda_link0'
    """

    _attached: dict[str, Body]
    _touching: dict[str, tuple[str, ...]]
    _default_pairs: SelfCollisionPairs | None

    def __init__(
        self,
        urdf: PathLike,
        *,
        spheres: PathLike | Mapping[str, Any] | None = None,
        srdf: PathLike | None = None,
        package_dirs: Sequence[PathLike] = (),
        max_overshoot: float | Mapping[str, float] | None = None,
        piece_overshoot: float | None = None,
        padding: float | Mapping[str, float] = 0.0,
        group: str | None = None,
        state: str | None = None,
        lock_joints: Mapping[str, float | None] | None = None,
        shapes: str = "collision",
        progress: Callable[[str, int, int], object] | None = None,
    ):
        locks = {} if lock_joints is None else lock_joints
        file = Srdf(srdf, group, state)
        sizes = max_overshoot, piece_overshoot, padding, locks
        self._take(read_robot(urdf, spheres, file, package_dirs, *sizes, progress, shapes))

    @classmethod
    def from_file(cls, path: PathLike, *, package_dirs: Sequence[PathLike] = ()) -> Self:
        """Reads a robot that `save` wrote, within milliseconds.

        Args:
            path: of the file.
            package_dirs: see `RobotSpheres`; those of the saved robot are searched too.

        Raises:
            FileNotFoundError: it, or the URDF that it names, does not exist.
            ValueError: it is no such file, or the URDF was changed since: the error says how to
                save it again. A mesh that was changed is not noticed.
        """
        return cls._described(read_robot_file(path, package_dirs))

    @classmethod
    def _described(cls, description: RobotDescription) -> Self:
        robot = cls.__new__(cls)
        robot._take(description)
        return robot

    def _take(self, robot: RobotDescription) -> None:
        self._description = robot
        self._place_on(robot.tree, robot.link_names)
        self.link_meshes = list(robot.link_meshes)
        self.link_shapes = robot.shapes
        self.links_without_spheres, self.fits = robot.links_without_spheres, robot.fits
        self.locked_joints, self.named_states = robot.locked, robot.named_states
        self._allowed: tuple[LeftOutPair, ...] = ()
        self._carry({}, {})

    def __repr__(self) -> str:
        carried = ", ".join(map(repr, self._attached))
        return (
            f"{type(self).__name__}({len(self.link_names)} links, {self.n_joints} joints: "
            f"{escaped(', '.join(self.joint_names), MAX_REPR)}; {self.n_spheres} spheres"
            + (f", carries {escaped(carried, MAX_REPR)})" if carried else ")")
        )

    _repr_html_ = notebook_html

    def __str__(self) -> str:
        spheres = self._description, self.sphere_links
        return robot_text(type(self).__name__, *spheres, self._attached, self._allowed)

    @property
    def attached(self) -> tuple[str, ...]:
        """Names of attached objects."""
        return tuple(self._attached)

    @outside_graphs("self_collision_pairs must be called outside of compiled graphs")
    def self_collision_pairs(self, *, ignore: Iterable[tuple[str, str]] = ()) -> SelfCollisionPairs:
        """The pairs of links to check for self-collision, by their spheres.

        These are all pairs of links, except for ignored ones and those that `self_collision_matrix`
        lists as not checked. Pairs of spheres that touch at each of 1,000 random joint values
        within the limits are left out.

        Args:
            ignore: allowed contacts of the robot with itself: pairs of names of links, or attached
                objects, in any order.

        Raises:
            ValueError: an unknown link.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> pairs = load_panda().self_collision_pairs(ignore=[("panda_link5", "panda_link7")])
            >>> len(pairs), pairs.n_sphere_pairs, len(pairs.touching)
            (41, 1056, 0)
        """
        requested = [*ignore]
        return dispatch.run_outside(lambda: self._self_collision_pairs(requested))

    def _self_collision_pairs(self, ignore: Iterable[tuple[str, str]]) -> SelfCollisionPairs:
        requested = checked_pairs("ignore", ignore, self.layout.names)
        left_out = [*self._description.left_out, *self._allowed]
        left_out += [LeftOutPair(*pair, IGNORED) for pair in requested]
        for name, links in self._touching.items():
            left_out += [LeftOutPair(name, link, CARRIED) for link in links]
        buffers, fits = self._description.spheres.buffers, self.fits
        return sampled_pairs(self.layout, self.joint_limits, left_out, buffers, fits)

    @outside_graphs("find_pairs must be called outside of compiled graphs")
    def find_pairs(
        self,
        n_samples: int,
        *,
        margin: float = 0.0,
        ignore: Iterable[tuple[str, str]] = (),
        generator: torch.Generator | None = None,
    ) -> SelfCollisionPairs:
        """The pairs of `self_collision_pairs` that come near at random joint values.

        Fewer pairs are faster. But the pairs that are left out are not checked, and may collide
        between the samples; they are listed in `left_out`.

        Args:
            n_samples: number of random joint values within the limits.
            margin: clearance [m] that counts as near.
            ignore: see `self_collision_pairs`.
            generator: of the joint values; the same in every call if None.
        """
        validate.require_count("n_samples", n_samples)
        requested = [*ignore]

        def find() -> SelfCollisionPairs:
            pairs, limits = self._self_collision_pairs(requested), self.joint_limits
            counts = contact_counts(self.layout, pairs, limits, n_samples, margin, generator)
            return pairs.without(counts == 0, f"not near in {n_samples} samples")

        return dispatch.run_outside(find)

    @outside_graphs("self_collision_matrix must be called outside of compiled graphs")
    def self_collision_matrix(self, *, n_samples: int = 1000) -> SelfCollisionMatrix:
        """Which links are checked against each other, why others are not, and how often they touch.

        Not checked are adjacent links, those connected by fixed joints, and what an SRDF, a robot
        file or `allow` says. Without such a file, neither are links in contact at the neutral
        configuration and in a quarter of random ones or more. Neutral joint values are 0, or in the
        middle of limits without 0. Links that were never in contact in samples are checked, as
        samples are no proof; `find_pairs` leaves them out. Links to which spheres are fitted are in
        contact where their convex pieces are.

        Args:
            n_samples: number of random joint values within the limits, the same in every call.

        Returns:
            All pairs of links; see `SelfCollisionMatrix`, which is printed and saved as an SRDF.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> matrix = load_panda().self_collision_matrix(n_samples=200)
            >>> print(str(matrix).splitlines()[-1][:40])
            42 of 55 pairs of links are checked; con
        """
        validate.require_count("n_samples", n_samples)

        def find() -> SelfCollisionMatrix:
            pairs = self.default_pairs
            counts = contact_counts(self.layout, pairs, self.joint_limits, n_samples)
            return matrix_of(pairs, counts, n_samples)

        return dispatch.run_outside(find)

    def allow(self, link: str, other: str, *, reason: str = "") -> None:
        """Allows two links, or attached objects, to touch: they are not checked any more.

        `print(robot)`, the matrix, and `left_out` of pairs list them. `SelfCollisionPairs` made
        before still hold them.

        Args:
            link: one of them.
            other: the other.
            reason: listed with the pair.

        Raises:
            ValueError: an unknown link.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> panda = load_panda()
            >>> panda.allow("panda_link5", "panda_link7", reason="they cannot reach each other")
            >>> len(panda.self_collision_pairs())
            41
        """
        [pair] = checked_pairs("allowed contacts", [(link, other)], self.layout.names)
        allowed = LeftOutPair(*pair, f"allowed: {reason}" if reason else "allowed")
        vars(self).update(_allowed=(*self._allowed, allowed), _default_pairs=None)

    def attach(
        self,
        name: str,
        link: str,
        spheres: Any,
        *,
        pose: Any = None,
        touch_links: Sequence[str] = (),
        padding: float = 0.0,
        max_overshoot: float | None = None,
        envs: Iterable[int] | None = None,
    ) -> None:
        """Attaches an object to a link, for example one in the gripper.

        Its spheres are added to those of the robot. `SelfCollisionPairs` made before do not fit the
        robot any more: create new ones.

        Args:
            name: of the object, in `sphere_links`.
            link: the link that it moves with, and may touch.
            spheres: rows x, y, z, radius [m]; or what `MeshWorld.add` takes, which is filled with
                spheres by `fit_spheres`, and covered by convex pieces for `shapes="exact"`.
            pose: x, y, z, qw, qx, qy, qz of the object in the frame of the link.
            touch_links: other links that it may touch.
            padding: added to the radii of the spheres [m].
            max_overshoot: how far fitted spheres may extend beyond the shape [m]; by its size if
                None, see `fit_spheres`.
            envs: envs in which it is attached, all if None; in others its spheres are disabled. For
                batch rows with different objects attach each in its own envs, and pass `env_index`
                to `spheres` and to the checks.

        Raises:
            TypeError, ValueError: no spheres or mesh, an unknown link, a name that is in use.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> panda = load_panda()
            >>> panda.attach("can", "panda_hand", [[0.0, 0.0, 0.12, 0.04]])
            >>> panda.spheres(torch.zeros(7)).shape, panda.sphere_links.count("can")
            (torch.Size([60, 4]), 1)
            >>> panda.detach("can")
        """
        validate.require_name("name", name)
        if name in self.layout.names:
            raise ValueError(f"name must be new to the robot, got {short_repr(name)}")
        require_links("link", [link], self.link_names)
        require_links("touch_links", touch_links, self.layout.names)
        body = body_of_object(name, link, spheres, max_overshoot).widened(padding)
        if pose is not None:
            body = body.moved(matrix_from(validate.check_pose("pose", pose).tolist()))
        only_in = None if envs is None else validate.env_set(envs, _MAX_ENVS)
        attached = self._attached | {name: replace(body, envs=only_in)}
        self._carry(attached, self._touching | {name: (link, *touch_links)})

    def detach(self, name: str) -> None:
        """Detaches an object.

        Raises:
            ValueError: no object of this name is attached.
        """
        if name not in self._attached:
            raise ValueError(
                f"name must be that of an attached object, got {short_repr(name)}; there is "
                f"{known_names(name, [*self._attached])}"
            )
        attached, touching = self._attached.copy(), self._touching.copy()
        del attached[name], touching[name]
        self._carry(attached, touching)

    def save(self, path: PathLike) -> None:
        """Writes spheres, convex pieces, pairs, coverage and the URDF's hash for `from_file`.

        Joints and shapes stay in the URDF. Padding, locks and `allow` are included, attached
        objects are not.

        Raises:
            ValueError: an object is attached.

        Example:
            >>> import pathlib, tempfile
            >>> from warp_collision.examples import load_panda
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "panda.yaml"
            >>> load_panda().save(path)
            >>> len(RobotSpheres.from_file(path).self_collision_pairs())
            42
        """
        if self._attached:
            names = short_repr([*self._attached])
            raise ValueError(f"objects must be detached before a robot is saved, got {names}")
        write_robot(path, self._description, self.default_pairs)

    def save_spheres(self, path: PathLike) -> None:
        """Writes the spheres of the links to a YAML file, which `spheres=` reads back as they are.

        Fitting them again is saved so; but as given ones they decide self-collision alone, without
        the convex pieces, which `save` keeps. Padding is included, attached objects are not.

        Raises:
            ValueError: the spheres came from a robot file that says more, which would be lost.
        """
        write_spheres(path, self._description.spheres)

    def coverage(
        self, *, resolution: float | None = None, links: Iterable[str] | None = None
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
            >>> base = load_panda().coverage(resolution=0.01)["panda_link0"]
            >>> base.count, base.uncovered > 0.7
            (1, True)
        """
        chosen = self.link_names if links is None else tuple(links)
        require_links("links", chosen, self.link_names)
        return {
            link: cached_coverage(
                self.spheres_of(link), joined([*map(mesh_in_link, shapes)]), resolution
            )
            for link, shapes in self._description.shapes.items()
            if link in chosen
        }

    @reads_values
    def report(
        self,
        configurations: Tensor | JointCurve,
        world: MeshWorld,
        *,
        margin: float = 0.0,
        shapes: Literal["spheres", "exact"] = "spheres",
        self_collision: bool | SelfCollisionPairs = True,
        ignore: Iterable[tuple[str, str]] = (),
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ) -> CollisionReport:
        """Reports which links collide with what at waypoints, deepest first.

        Args:
            configurations: joints (batch, horizon, n_joints), or spheres (batch, horizon,
                n_spheres, 4) of this robot, on the device of the world; or a `JointCurve`, at the
                ends of its pieces.
            world: the obstacles.
            margin: clearance [m] below which a pair is listed; not links that are always as near.
            shapes: see `configuration_in_collision`. "exact", for joints alone: depths are those of
                spheres where convex pieces touch, and minus the pieces' distance elsewhere.
            self_collision: see `configuration_in_collision`.
            ignore: allowed contacts, pairs of a link, or attached object, and an obstacle.
            env_index: (batch,) int32, the env of each row; env 0 for all if None.
            base_pose: see `spheres`; for joints alone.

        Returns:
            See `CollisionReport`; its `str` is a table, with contacts at all joint values once.

        Raises:
            TypeError, ValueError: another type, shape, device or range, or names that are unknown.
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
        require_world(world)
        if isinstance(configurations, JointCurve):
            configurations = configurations.knots(world.device)
        spheres, joints = configurations, None
        is_exact = self.layout.is_exact(shapes)
        if isinstance(spheres, Tensor) and spheres.ndim == 3:
            spheres, joints = self(spheres, base_pose, env_index), spheres
        elif base_pose is not None:
            raise ValueError("base_pose must be None for spheres, which are in the world")
        elif is_exact:
            raise ValueError("shapes must be 'spheres' for spheres, got 'exact': give joint values")
        pairs = self.default_pairs if self_collision is True else self_collision or None
        limits = None if joints is None else self.joint_limits
        scene = ReportedScene(self.layout, world, pairs, ignore, limits, base_pose, is_exact)
        report = scene.report(spheres, joints, env_index, margin)
        report = report._replace(links_without_spheres=self.links_without_spheres)
        return report.with_limits(joints, self.joint_limits, self.joint_names)

    def _carry(self, attached: dict[str, Body], touching: dict[str, tuple[str, ...]]) -> None:
        """Takes attached objects, and the links that they may touch, in place of those before."""
        bodies = self._description.spheres.bodies | attached
        is_changed = attached or self._allowed
        # All at once: an interrupt comes before or after it.
        vars(self).update(
            _attached=attached,
            _touching=touching,
            layout=SphereLayout(self._description.tree, bodies),
            _default_pairs=None if is_changed else self._description.pairs,
        )

    @property
    def default_pairs(self) -> SelfCollisionPairs:
        """`self_collision_pairs` without arguments, computed once."""
        if is_compiling() or self._default_pairs is None:
            self._prepare_default_pairs()
        assert self._default_pairs is not None
        return self._default_pairs

    @torch_private.run_while_tracing
    def _prepare_default_pairs(self) -> None:
        if self._default_pairs is None:
            self._default_pairs = dispatch.run_outside(lambda: self._self_collision_pairs(()))
