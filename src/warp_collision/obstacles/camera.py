"""Cameras: a lens and a pose, from what drivers and other libraries call them, checked once."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch

from warp_collision.formats.ros_messages import message_field
from warp_collision.messages import depth_of_caller
from warp_collision.obstacles.shapes import rotation_matrix
from warp_collision.poses import PoseLike, pose_from_matrix
from warp_collision.validate import check_pose, on_host, require_count

Convention = Literal["opencv", "opengl", "ros"]
# Columns: right, down and forward of the optical frame, in the frame of each convention.
_OPTICAL = {
    "opencv": np.eye(3),
    "opengl": np.diag([1.0, -1.0, -1.0]),
    "ros": np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]),
}
# Principal points of real cameras are nearer to the middle than this, of width or height.
_OFF_MIDDLE = 0.1
# Fields of view that depth cameras have, at least and at most [degrees].
_NARROWEST, _WIDEST = 10.0, 150.0
# How different the focal lengths of a camera may be.
_SQUARE = 1.25


class CameraWarning(UserWarning):
    """A camera, or what it sees, that is more likely a mistake than meant.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from warp_collision import CameraWarning, PointCloud
        >>> lens = (525.0, 319.5, 525.0, 239.5)  # fx, cx, fy, cy
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", CameraWarning)
        ...     _ = PointCloud.from_depth(np.ones((480, 640)), lens, np.eye(4), stride=8)
        >>> print(str(caught[0].message).split(":")[0])
        intrinsics must be fx, fy, cx, cy, and look like fx, cx, fy, cy
    """


class Camera:
    """A pinhole camera with its pose.

    Attributes:
        focal: (2,) focal lengths fx, fy [pixels].
        middle: (2,) principal point cx, cy, where the center of the first pixel is 0, 0.
        size: height and width of its images, None if any will do.
        pose: (7,) of the optical frame in the world, x right, y down, z forward.
        convention: of poses that `at` is given.
        distortion: (5,) or (8,) coefficients k1, k2, p1, p2, k3, ... of ROS and OpenCV, or None.

    Example:
        >>> import numpy as np
        >>> from warp_collision import Camera, PointCloud
        >>> lens = (150.0, 150.0, 79.5, 59.5)
        >>> camera = Camera(lens, np.eye(4), convention="ros", size=(120, 160))
        >>> cloud = PointCloud.from_depth(np.ones((120, 160)), camera, stride=40)
        >>> cloud.points[:, 0].tolist()[:2]  # forward is x
        [1.0, 1.0]
        >>> moved = camera.at((0, 0, 0.5, 1, 0, 0, 0))
    """

    def __init__(
        self,
        intrinsics: Any,
        pose: PoseLike,
        convention: Convention = "opencv",
        *,
        size: tuple[int, int] | None = None,
        distortion: Any = None,
    ):
        """Checks a camera.

        Args:
            intrinsics: fx, fy, cx, cy in pixels, or the matrix (3, 3) without skew; or an object
                that has them, with its size: of RealSense (fx, fy, ppx, ppy), Open3D
                (intrinsic_matrix) or trimesh (K, resolution).
            pose: of the camera in the world: x, y, z, qw, qx, qy, qz or a rigid matrix (4, 4).
            convention: the axes of that pose. With "opencv" x is right, y down, z forward, as in
                optical frames of ROS. With "opengl" x is right, y up, z backward, as in Blender,
                trimesh and USD. With "ros" x is forward, y left, z up, as in bodies of ROS.
            size: height and width of its images, which others are refused for.
            distortion: k1, k2, p1, p2, k3 ("plumb_bob"), and k4, k5, k6 ("rational_polynomial");
                images are made straight by it, each pixel from the nearest one.

        Raises:
            TypeError: numbers that are none.
            ValueError: shapes, focal lengths that are not positive, a pose that is not rigid.

        Warns:
            CameraWarning: a field of view below 10 or above 150 degrees, a principal point far
                from the middle, focal lengths that differ: with a size here, else with an image.
        """
        if convention not in _OPTICAL:
            raise ValueError(f"convention must be one of {', '.join(_OPTICAL)}, got {convention!r}")
        given = _attributes_of(intrinsics)
        if given is not None:
            intrinsics = given["matrix"]
            size = given["size"] if size is None else size
            distortion = given["distortion"] if distortion is None else distortion
        self.focal, self.middle = _focal_and_middle(intrinsics)
        self.convention: Convention = convention
        self.pose = _optical_pose(pose, convention)
        self.distortion = _distortion(distortion)
        self.size = None
        if size is not None:
            height, width = size
            for number in (height, width):
                require_count("size", number)
            self.size = (int(height), int(width))
            self._suspect(self.size)

    @classmethod
    def from_camera_info(
        cls,
        info: Any,
        pose: PoseLike,
        convention: Convention = "opencv",
        *,
        rectified: bool = False,
    ) -> Camera:
        """A camera of ROS.

        Args:
            info: a sensor_msgs/CameraInfo, of ROS 1 or 2, or a dict of its fields: width, height,
                K or k, D or d, P or p, distortion_model.
            pose: of the optical frame in the world, or as the convention says.
            convention: see `Camera`.
            rectified: whether the images are rectified: then P holds, without distortion.

        Raises:
            ValueError: no calibration (K is 0), another model of distortion, or as `Camera`.

        Example:
            >>> import numpy as np
            >>> from warp_collision import Camera
            >>> K = [525.0, 0, 319.5, 0, 525.0, 239.5, 0, 0, 1]
            >>> info = {"width": 640, "height": 480, "K": K, "D": [], "distortion_model": ""}
            >>> camera = Camera.from_camera_info(info, np.eye(4))
            >>> camera.size, camera.focal.tolist()
            ((480, 640), [525.0, 525.0])
        """
        matrix = _floats("K", _field(info, "P" if rectified else "K"))
        rows = matrix.reshape(3, -1)[:, :3] if matrix.size in (9, 12) else matrix
        if rows.shape != (3, 3) or not rows.any():
            name = "P" if rectified else "K"
            raise ValueError(f"{name} of a camera info must be calibrated, got {matrix.tolist()}")
        model = _field(info, "distortion_model", "")
        numbers = _floats("D", _field(info, "D", ()))
        distortion = None
        if numbers.any() and not rectified:
            if model not in ("", "plumb_bob", "rational_polynomial"):
                raise ValueError(
                    "distortion_model must be plumb_bob or rational_polynomial, or the images "
                    f"rectified before, got {model!r}"
                )
            distortion = numbers
        size = int(_field(info, "height")), int(_field(info, "width"))
        return cls(rows, pose, convention, size=size, distortion=distortion)

    def __repr__(self) -> str:
        lens = ", ".join(f"{number:.6g}" for number in (*self.focal, *self.middle))
        size = "" if self.size is None else f", size={self.size}"
        at = ", ".join(f"{number:.4g}" for number in self.pose)
        return f"Camera(({lens}), optical frame at ({at}){size})"

    def at(self, pose: PoseLike) -> Camera:
        """The same camera at another pose, in the convention of this one."""
        moved = object.__new__(Camera)
        moved.__dict__.update(self.__dict__)
        moved.pose = _optical_pose(pose, self.convention)
        return moved

    @property
    def rotation(self) -> np.ndarray:
        """(3, 3) of the optical frame in the world."""
        return rotation_matrix(self.pose[3:])

    def straight(self, depth: np.ndarray) -> np.ndarray:
        """An image (height, width) that the lens has not bent: of nearest pixels, else NaN."""
        height, width = depth.shape
        if self.size is None:
            self._suspect((height, width))
        elif self.size != (height, width):
            turned = " (is it transposed?)" if self.size == (width, height) else ""
            raise ValueError(
                f"depth must have the camera's shape {self.size}, got {depth.shape}{turned}"
            )
        if self.distortion is None:
            return depth
        column, row = _bent(self, height, width)
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        found = np.full((height, width), np.nan)
        found[inside] = depth[row[inside], column[inside]]
        return found

    def _suspect(self, size: tuple[int, int]) -> None:
        """Warns of what no real camera has."""
        height, width = size
        extent = np.array([width, height], np.float64)
        center = 0.5 * (extent - 1.0)
        numbers = (
            f"got {', '.join(f'{number:.6g}' for number in (*self.focal, *self.middle))} for "
            f"images of {width} x {height}"
        )

        def is_off(point: np.ndarray, middle: np.ndarray) -> bool:
            return bool((np.abs(point - middle) > _OFF_MIDDLE * 2.0 * (middle + 0.5)).any())

        if is_off(self.middle, center):
            reading = np.array([self.focal[1], self.middle[1]])
            share = self.middle / np.maximum(center, 1e-9)
            if not is_off(reading, center):
                warn_of_camera(
                    "intrinsics must be fx, fy, cx, cy, and look like fx, cx, fy, cy: " + numbers
                )
            elif not is_off(self.middle, center[::-1]):
                warn_of_camera(f"depth must be (height, width), and looks transposed: {numbers}")
            elif 0.9 < share[0] / max(share[1], 1e-9) < 1.1:
                warn_of_camera(
                    "intrinsics must be those of the image's resolution, and look like those of "
                    f"one {share[0]:.3g} times as large: {numbers}"
                )
            else:
                warn_of_camera(f"the principal point must be near the middle: {numbers}")
        elif max(self.focal) > _SQUARE * min(self.focal):
            warn_of_camera(f"fx and fy must be about equal, as pixels are square: {numbers}")
        else:
            view = np.degrees(2.0 * np.arctan(0.5 * extent / self.focal))
            if view.max() < _NARROWEST or view.max() > _WIDEST:
                warn_of_camera(
                    f"the field of view must be {_NARROWEST:.0f} to {_WIDEST:.0f} degrees, and is "
                    f"{view[0]:.3g} x {view[1]:.3g}: {numbers}"
                )


def warn_of_camera(text: str) -> None:
    """Warns at the line that called the library."""
    warnings.warn(CameraWarning(text), stacklevel=depth_of_caller())


def camera_of(intrinsics: Any, camera_pose: PoseLike | None) -> Camera:
    """The camera that a call was given: whole, or as intrinsics and pose.

    Raises:
        TypeError: no pose with intrinsics.
    """
    if isinstance(intrinsics, Camera):
        return intrinsics if camera_pose is None else intrinsics.at(camera_pose)
    if camera_pose is None:
        raise TypeError("camera_pose must be given with intrinsics, or a Camera in their place")
    return Camera(intrinsics, camera_pose)


def _optical_pose(pose: PoseLike, convention: str) -> np.ndarray:
    """(7,) of the optical frame."""
    given = check_pose("camera_pose", pose).numpy()
    if convention == "opencv":
        return given
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_matrix(given[3:]) @ _OPTICAL[convention]
    matrix[:3, 3] = given[:3]
    return pose_from_matrix(torch.from_numpy(matrix)).numpy()


def _bent(camera: Camera, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and rows of the pixels that a bent image has of each pixel of a straight one."""
    k1, k2, p1, p2, k3, k4, k5, k6 = camera.distortion  # pyright: ignore
    x = (np.arange(width) - camera.middle[0]) / camera.focal[0]
    y = ((np.arange(height) - camera.middle[1]) / camera.focal[1])[:, None]
    square = x * x + y * y
    outer = 1.0 + square * (k1 + square * (k2 + square * k3))
    radial = outer / (1.0 + square * (k4 + square * (k5 + square * k6)))
    bent_x = x * radial + 2.0 * p1 * x * y + p2 * (square + 2.0 * x * x)
    bent_y = y * radial + p1 * (square + 2.0 * y * y) + 2.0 * p2 * x * y
    column = np.rint(np.clip(bent_x * camera.focal[0] + camera.middle[0], -9.0, width + 9.0))
    row = np.rint(np.clip(bent_y * camera.focal[1] + camera.middle[1], -9.0, height + 9.0))
    return column.astype(int), row.astype(int)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """Matrix, size and distortion of another library's camera, None of numbers."""
    if hasattr(value, "ppx"):  # pyrealsense2.intrinsics
        matrix = np.array([[value.fx, 0.0, value.ppx], [0.0, value.fy, value.ppy], [0.0, 0.0, 1.0]])
        bent = np.asarray(getattr(value, "coeffs", ()), np.float64)
        distortion = bent if bent.any() else None
    elif hasattr(value, "intrinsic_matrix"):  # open3d.camera.PinholeCameraIntrinsic
        matrix, distortion = np.asarray(value.intrinsic_matrix, np.float64), None
    elif hasattr(value, "K") and hasattr(value, "resolution"):  # trimesh.scene.Camera
        matrix, distortion = np.asarray(value.K, np.float64), None
        width, height = value.resolution
        return {"matrix": matrix, "size": (int(height), int(width)), "distortion": distortion}
    else:
        return None
    return {"matrix": matrix, "size": (value.height, value.width), "distortion": distortion}


def _field(info: Any, name: str, default: Any = None) -> Any:
    return message_field(info, "a camera info", name, default)


def _floats(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(on_host(value))
    except ValueError:
        raise TypeError(f"{name} must be an array, got rows of unequal length") from None
    if array.size and array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got {array.dtype}")
    return array.astype(np.float64)


def _distortion(value: Any) -> np.ndarray | None:
    """(8,) coefficients, None where there is nothing to make straight."""
    if value is None:
        return None
    given = _floats("distortion", value).ravel()
    if len(given) > 8 or len(given) < 4 or not np.isfinite(given).all():
        raise ValueError(f"distortion must be 4 to 8 finite numbers, got {given.tolist()}")
    return np.concatenate((given, np.zeros(8 - len(given)))) if given.any() else None


def _focal_and_middle(value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Focal lengths (2,) and principal point (2,), in pixels."""
    try:
        given = np.asarray(on_host(value))
    except ValueError:
        raise TypeError("intrinsics must be an array, got rows of unequal length") from None
    if given.dtype.kind not in "fiu" or given.shape not in ((4,), (3, 3)):
        raise ValueError(
            f"intrinsics must be 4 numbers fx, fy, cx, cy or a 3 x 3 matrix, got {given.dtype} "
            f"{given.shape}"
        )
    given = given.astype(np.float64)
    if given.shape == (3, 3):
        plain = np.array(
            [[given[0, 0], 0.0, given[0, 2]], [0.0, given[1, 1], given[1, 2]], [0.0, 0.0, 1.0]]
        )
        if not np.array_equal(given, plain):
            raise ValueError(
                "intrinsics must be fx, 0, cx; 0, fy, cy; 0, 0, 1, without skew, got "
                f"{given.tolist()}"
            )
        given = given[[0, 1, 0, 1], [0, 1, 2, 2]]
    if not np.isfinite(given).all() or (given[:2] <= 0.0).any():
        raise ValueError(f"intrinsics must be finite with fx, fy > 0, got {given.tolist()}")
    return given[:2], given[2:]
